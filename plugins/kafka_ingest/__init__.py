"""Load Kafka topics into PostgreSQL in scheduled batches, exactly once.

``docs/architecture.md`` shows the house: ``protocol`` is the promise, ``postgres``, ``kafka``, ``pipeline_files`` and
``spark`` know one thing of the world each, ``operators`` and ``cli`` are the two faces.
"""

__version__ = "0.1.0"
