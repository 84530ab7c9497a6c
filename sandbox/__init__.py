"""The whole system on one machine, without containers: PostgreSQL, Kafka, Spark and Airflow from packages.

``python -m sandbox up`` starts it for exploring, the tests start the parts that they need. Everything listens on
loopback; state lives under ``.sandbox/`` and downloads under ``.cache/`` of the checkout.
"""
