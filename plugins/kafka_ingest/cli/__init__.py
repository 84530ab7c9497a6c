"""The command line: the same steps without Airflow."""
