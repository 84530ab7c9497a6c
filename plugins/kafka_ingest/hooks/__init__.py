"""Airflow connections as values for the adapters."""
