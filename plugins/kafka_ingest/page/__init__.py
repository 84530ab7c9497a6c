"""The page inside Airflow: read only, server rendered, mounted in the API server by ``kafka_ingest_plugin.py``."""
