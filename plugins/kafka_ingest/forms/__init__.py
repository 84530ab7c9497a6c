"""What a person asks for, in Airflow and on the command line: fields, checks, requests."""
