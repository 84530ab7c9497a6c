"""Load Kafka topics into PostgreSQL in scheduled batches, exactly once.

For DAGs of your own: ``from kafka_ingest import kafka_to_postgres, load_pipeline`` (``docs/operating.md``). Of all
names in the package these two are promised; they keep their place and their arguments.

``docs/architecture.md`` shows the house: ``protocol`` is the promise, ``postgres``, ``kafka``, ``pipeline_files`` and
``spark`` know one thing of the world each, ``operators`` and ``cli`` are the two faces.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["kafka_to_postgres", "load_pipeline"]
__version__ = "0.1.0"

#: Loaded when somebody asks for them: the job imports this package where there is no Airflow.
_HOMES = {"kafka_to_postgres": "operators.dags", "load_pipeline": "pipeline_files.files"}

if TYPE_CHECKING:
    from kafka_ingest.operators.dags import kafka_to_postgres
    from kafka_ingest.pipeline_files.files import load_pipeline
else:  # A type checker that sees it takes every name for one of the package.

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
