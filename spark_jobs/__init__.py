"""The heavy lifting: reading, decoding and staging on Spark. Never imports Airflow."""
