"""The one file under ``plugins/`` that Airflow executes; ``.airflowignore`` keeps it away from the package itself.

Airflow executes it in every component, and only the API server shows the page. So nothing of it is imported here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from airflow.plugins_manager import AirflowPlugin

#: The three arguments of an ASGI application.
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Page:
    """The page inside Airflow, an ASGI application that is imported and built at its first request."""

    def __init__(self) -> None:
        self._built: Any = None
        self._building = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        async with self._building:
            if self._built is None:
                # In a thread: other requests need not wait for the imports.
                self._built = await asyncio.to_thread(_build)
        await self._built(scope, receive, send)


def _build() -> Any:
    from kafka_ingest.page.app import airflow_page

    return airflow_page()


class KafkaIngestPlugin(AirflowPlugin):
    """The plugin that shows the package under Admin, Plugins, and the page in the navigation."""

    name = "kafka_ingest"
    fastapi_apps = [{"name": "Kafka", "app": Page(), "url_prefix": "/kafka-ingest"}]  # noqa: RUF012 - Airflow's way
    external_views = [  # noqa: RUF012 - Airflow's way
        {
            "name": "Kafka",  # a longer one is cut off
            # Relative to the address of Airflow's UI, which may have a path (``[api] base_url``).
            "href": "kafka-ingest/",
            "url_route": "kafka-ingest",
            "destination": "nav",
            "nav_top_level": True,  # Airflow 3.3; 3.1 ignores it
            "icon": "kafka-ingest/static/icon.svg",
        }
    ]
