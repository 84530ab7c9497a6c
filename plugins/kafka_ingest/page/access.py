"""Who reads the page: Airflow's own login, and what its auth manager lets a person see.

FastAPI apps of plugins are open to everybody unless they ask (Airflow 3.3.2, ``api_fastapi/app.py``: ``init_plugins``
only mounts them). So each route of the page depends on :func:`reader_of`.

A reader sees a pipeline where the auth manager lets the person read its DAG. Payloads may hold personal data, so they
need three permissions: to read the DAG, to edit it, and to see the custom view :data:`PAYLOAD_VIEW`.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias
from urllib.parse import urlencode

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import bearer_scheme, get_user, resolve_user_from_token
from airflow.configuration import conf
from fastapi import HTTPException, Request, status

from kafka_ingest.page.airflow_side import team_names

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

#: Name of the custom view that stands for payloads. FAB shows it as "can read on Kafka Ingest Payloads".
PAYLOAD_VIEW = "Kafka Ingest Payloads"

Method: TypeAlias = Literal["GET", "PUT"]


class Reader(Protocol):
    """A person who is logged in. The methods may ask a server: call them in a thread."""

    @property
    def name(self) -> str:
        """The name to show."""

    def readable(self, dag_ids: Collection[str]) -> frozenset[str]:
        """Return those of the DAGs that the person may read."""

    def may_see_payloads(self, dag_id: str) -> bool:
        """Tell whether the person may see keys, values and headers of the DAG's records."""


@dataclass(frozen=True, slots=True)
class AirflowReader:
    """A person as Airflow's auth manager knows it.

    Attributes:
        user: Airflow's user.
        manager: Airflow's auth manager.
    """

    user: BaseUser
    manager: BaseAuthManager[Any]

    @property
    def name(self) -> str:
        """The name to show."""
        return self.user.get_name()

    def readable(self, dag_ids: Collection[str]) -> frozenset[str]:
        """Return those of the DAGs that the person may read."""
        return self._authorized("GET", dag_ids)

    def may_see_payloads(self, dag_id: str) -> bool:
        """Tell whether the person may see keys, values and headers of the DAG's records."""
        return all(
            self._authorized(method, [dag_id]) for method in ("GET", "PUT")
        ) and self.manager.is_authorized_custom_view(method="GET", resource_name=PAYLOAD_VIEW, user=self.user)

    def _authorized(self, method: Method, dag_ids: Collection[str]) -> frozenset[str]:
        found: set[str] = set()
        for team, members in _teams(dag_ids).items():
            if team is None:
                # One question about many DAGs: auth managers that ask a server answer it in one go.
                found |= self.manager.filter_authorized_dag_ids(dag_ids=members, user=self.user, method=method)
            else:
                found |= {dag_id for dag_id in members if self._is_authorized(method, dag_id, team)}
        return frozenset(found)

    def _is_authorized(self, method: Method, dag_id: str, team: str) -> bool:
        details = DagDetails(id=dag_id, team_name=team)
        return self.manager.is_authorized_dag(method=method, details=details, user=self.user)


async def reader_of(request: Request) -> Reader:
    """Return who asks; a dependency of every route.

    Raises:
        HTTPException: 401, nobody is logged in.
    """
    try:
        return AirflowReader(await _user_of(request), get_auth_manager())
    except HTTPException as refused:
        # Airflow answers 403 to a token that is none. For a person that is one thing: log in.
        raise HTTPException(status.HTTP_401_UNAUTHORIZED, str(refused.detail)) from None


async def _user_of(request: Request) -> BaseUser:
    """Return Airflow's user, from a Bearer token or from the login's cookie."""
    credentials = await bearer_scheme(request)
    if "request" in inspect.signature(get_user).parameters:
        return await get_user(request, None, credentials)
    # Airflow 3.1.0 reads no cookie on the server.
    token = credentials.credentials if credentials else request.cookies.get(COOKIE_NAME_JWT_TOKEN)
    return await resolve_user_from_token(token)


def login_path(request: Request) -> str:
    """Return the address of Airflow's login, which leads back to what was asked for."""
    # Of Airflow, not of the page that is mounted in it.
    root = str(request.scope.get("app_root_path", "")).rstrip("/")
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"{root}/api/v2/auth/login?{urlencode({'next': asked})}"


def _teams(dag_ids: Collection[str]) -> dict[str | None, set[str]]:
    """Return the DAGs by the team that owns them; ``None`` where there are no teams."""
    owners: Mapping[str, str] = {}
    if conf.getboolean("core", "multi_team", fallback=False):
        owners = team_names(dag_ids)
    teams: dict[str | None, set[str]] = defaultdict(set)
    for dag_id in dag_ids:
        teams[owners.get(dag_id)].add(dag_id)
    return teams
