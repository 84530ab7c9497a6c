"""The one file under ``plugins/`` that Airflow executes; ``.airflowignore`` keeps it away from the package itself."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class KafkaIngestPlugin(AirflowPlugin):
    """The plugin that shows the package under Admin, Plugins."""

    name = "kafka_ingest"
