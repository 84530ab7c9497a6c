"""The commands of ``python -m kafka_ingest``: the same steps without Airflow, one module a kind of command."""
