"""Airflow's side of the steps: context to step to XCom. Thin; heavy libraries are imported while a task runs."""
