"""Airflow's side: tasks, DAGs, context."""
