-- Run by the postgres image once, on an empty data folder. Airflow's own tables are apart from the warehouse.
CREATE DATABASE airflow;
