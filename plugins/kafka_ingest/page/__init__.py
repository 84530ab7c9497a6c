"""The page inside Airflow: pipelines, batches and dead letters, read only."""
