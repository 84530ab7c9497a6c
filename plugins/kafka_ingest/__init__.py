"""Load Kafka topics into PostgreSQL in scheduled batches, exactly once.

Layers (see ``docs/architecture.md``): ``core`` decides, ``steps`` order the decisions, ``adapters`` touch the world,
``hooks`` and ``operators`` are Airflow's side, ``cli`` runs the same steps without Airflow.
"""

__version__ = "0.1.0"
