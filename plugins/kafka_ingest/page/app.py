"""The page as a FastAPI app: routes, errors, headers. It reads; every change is one of Airflow's forms."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any, TypeVar

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kafka_ingest.errors import ConfigError, IngestError, TooBusy
from kafka_ingest.page import rendering
from kafka_ingest.page.access import Reader, login_path, reader_of
from kafka_ingest.page.airflow_side import AirflowDatabase, AirflowSide, DagFacts
from kafka_ingest.page.answers import Answers
from kafka_ingest.page.links import Links, read_cursor, read_place
from kafka_ingest.page.states import Standing, State, judge
from kafka_ingest.postgres.overview import DeadLetterPage, PostgresOverview
from kafka_ingest.report import dead_letter_document

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

# ----------
# Settings: environment variables of Airflow's API server.

PAYLOADS = "KAFKA_INGEST_PAGE_PAYLOADS"
LATE_MINUTES = "KAFKA_INGEST_PAGE_LATE_MINUTES"
CONNECTIONS = "KAFKA_INGEST_PAGE_CONNECTIONS"


@dataclass(frozen=True, slots=True)
class PageSettings:
    """What the page may show, and how.

    Attributes:
        has_payloads: Whether anybody may see keys, values and headers of dead letters.
        late_after: How long after a run was due a pipeline counts as late.
        connections: Connection that the page uses in place of a pipeline's own, such as one of a role that only reads.
    """

    has_payloads: bool = True
    late_after: timedelta = timedelta(minutes=15)
    connections: Mapping[str, str] = field(default_factory=dict)


def page_settings(environment: Mapping[str, str]) -> PageSettings:
    """Read the settings.

    Raises:
        ConfigError: Lists every fault.
    """
    faults: list[str] = []
    payloads, minutes = environment.get(PAYLOADS, "on"), environment.get(LATE_MINUTES, "15")
    if payloads not in ("on", "off"):
        faults.append(f"{PAYLOADS}: expected on or off; found {payloads!r}")
    if not (minutes.isascii() and minutes.isdigit() and len(minutes) <= 6):
        faults.append(f"{LATE_MINUTES}: expected whole minutes; found {minutes!r}")
    connections = _connections(environment.get(CONNECTIONS, "{}"))
    if connections is None:
        faults.append(f'{CONNECTIONS}: expected a JSON object such as {{"warehouse": "warehouse_reader"}}')
    if faults:
        raise ConfigError(
            "the page of Kafka pipelines cannot be shown",
            expected="environment variables as docs/page.md describes them",
            found="\n".join(faults),
            next_command="correct them, and restart Airflow's API server",
        )
    return PageSettings(payloads == "on", timedelta(minutes=int(minutes)), connections or {})


def _connections(text: str) -> dict[str, str] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    is_read = isinstance(document, dict) and all(isinstance(value, str) for value in document.values())
    return document if is_read else None


# ----------
# Headers of every answer.

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    # Who logs out, or loses a right, does not find the page in the browser's cache.
    "Cache-Control": "no-store",
}


class _SafeHeaders:
    """Adds what no answer goes without; an answer that has said otherwise keeps it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


# ----------
# The app.


def airflow_page() -> FastAPI:
    """Return the app for Airflow's API server."""
    return create_app(AirflowDatabase(), reader_of)


ReaderOf = Callable[..., Reader | Awaitable[Reader]]


def create_app(
    airflow: AirflowSide,
    reader_of: ReaderOf,
    *,
    environment: Mapping[str, str] = os.environ,
    answers: Answers | None = None,
) -> FastAPI:
    """Return the app. No route but that of the page's own files answers without ``reader_of``.

    Args:
        airflow: What Airflow knows.
        reader_of: FastAPI dependency that returns who reads, and raises ``HTTPException`` where nobody is logged in.
        environment: Environment variables.
        answers: Threads and kept answers.
    """

    async def log_in(request: Request, reader: Any = Depends(reader_of)) -> None:  # noqa: B008 - FastAPI's way
        request.state.reader = reader

    app = FastAPI(
        title="kafka_ingest",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[Depends(log_in)],
    )
    app.add_middleware(_SafeHeaders)
    app.add_exception_handler(IngestError, _ingest_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _not_found)
    app.add_exception_handler(Exception, _unexpected)
    # Not a route of FastAPI: the page that asks for a login needs its style. The files are as public as the package.
    app.router.routes.append(Route("/static/{path:path}", _static))
    try:
        page = _Page(airflow, page_settings(environment), answers or Answers())
    except ConfigError as fault:
        app.add_api_route("/{path:path}", partial(_refuse, fault), response_model=None)
        return app
    app.add_api_route("/", page.overview)
    app.add_api_route("/pipelines/{pipeline}", page.pipeline)
    app.add_api_route("/batches/{batch_id}", page.batch)
    app.add_api_route("/pipelines/{pipeline}/dead-letters", page.dead_letters)
    app.add_api_route("/pipelines/{pipeline}/dead-letters.jsonl", page.download)
    return app


async def _refuse(fault: ConfigError) -> None:
    raise fault


def _links(request: Request) -> Links:
    return Links(str(request.scope.get("root_path", "")).rstrip("/"))


def _html(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    text = rendering.render(template, links=_links(request), **values)
    # UTF-8 has no lone surrogates; a name in Airflow or the ledger has none either, an address that is echoed may.
    return Response(text.encode("utf-8", "replace"), status, media_type="text/html", headers=_HEADERS)


async def _ingest_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, IngestError)  # noqa: S101 - registered for it
    is_busy = isinstance(error, TooBusy)
    answer = _html(request, "fault.html", 503, title="Too busy" if is_busy else "Not available", error=error)
    answer.headers["Retry-After"] = "5" if is_busy else "30"
    return answer


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    headers = dict(error.headers or {})
    if "location" in {name.lower() for name in headers}:
        return Response(status_code=error.status_code, headers=headers)
    if error.status_code == HTTPStatus.UNAUTHORIZED:
        return _html(request, "login.html", error.status_code, login=login_path(request))
    title = HTTPStatus(error.status_code).phrase
    text = error.detail if error.detail != title else ""
    answer = _html(request, "message.html", error.status_code, title=title, text=text)
    answer.headers.update(headers)
    return answer


async def _not_found(request: Request, _: Exception) -> Response:
    return await _http_error(request, HTTPException(404, _NOTHING_HERE))


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("the page %s failed", request.url.path, exc_info=error)
    text = "The log of Airflow's API server has the error."
    return _html(request, "message.html", 500, title="The page has failed", text=text)


#: The same for what does not exist and for what this reader may not see.
_NOTHING_HERE = "There is no such page, or you may not read the DAG that it belongs to."

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def _static_files() -> Iterator[tuple[str, bytes]]:
    root = files("kafka_ingest.page").joinpath("static")
    folders = [("", root)]
    while folders:
        prefix, folder = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{prefix}{entry.name}/", entry))
            elif PurePosixPath(entry.name).suffix in _TYPES:
                yield prefix + entry.name, entry.read_bytes()


_STATIC = dict(_static_files())


async def _static(request: Request) -> Response:
    path = request.path_params["path"]
    if path not in _STATIC:
        raise HTTPException(404, _NOTHING_HERE)
    headers = {"Cache-Control": "private, max-age=3600"}
    return Response(_STATIC[path], media_type=_TYPES[PurePosixPath(path).suffix], headers=headers)


# ----------
# The pages.

#: Lane of Airflow's database, and of what each reader asks for alone.
_AIRFLOW, _READERS = "Airflow", "the page"
_STANDINGS: Mapping[str, bool | None] = {"unresolved": False, "resolved": True, "all": None}
#: Bytes of a key, a value or a header that the viewer shows; the download has all.
SHOWN_BYTES = 65_536
#: Partitions that a page shows at first, the worst of them: a browser sorts and filters so many at once.
MOST_PARTITIONS = 1_000


@dataclass(frozen=True, slots=True)
class _Board:
    """All pipelines that Airflow and the ledgers know, whoever reads."""

    standings: Sequence[Standing]
    faults: Mapping[str, IngestError]
    now: datetime


class _Page:
    def __init__(self, airflow: AirflowSide, settings: PageSettings, answers: Answers) -> None:
        self._airflow = airflow
        self._settings = settings
        self._answers = answers

    async def overview(self, request: Request) -> Response:
        """All pipelines whose DAG the reader may read."""
        board = await self._board()
        readable = await self._readable(request, {one.dag_id for one in board.standings})
        standings = [one for one in board.standings if one.dag_id in readable]
        shown = {one.connection for one in standings}
        faults = {name: fault for name, fault in board.faults.items() if name in shown}
        return await self._html(request, "overview.html", standings=standings, faults=faults, now=board.now)

    async def pipeline(self, request: Request, pipeline: str, connection: str = "", partitions: str = "") -> Response:
        """One pipeline."""
        one = await self._standing(request, pipeline, connection)
        if one.state is State.UNKNOWN:
            return await self._html(request, "pipeline.html", one=one, rows=None)
        most = None if partitions == "all" else MOST_PARTITIONS
        rows = await self._ask(one.connection, ("pipeline", pipeline, most), lambda o: o.pipeline(pipeline, most))
        one = judge(rows.summary, one, self._settings.late_after)
        is_cut = len(rows.partitions) == most
        return await self._html(request, "pipeline.html", one=one, rows=rows, is_cut=is_cut)

    async def batch(self, request: Request, batch_id: str, connection: str = "") -> Response:
        """One batch, in whichever database it is."""
        board = await self._board()
        readable = await self._readable(request, {one.dag_id for one in board.standings})
        seen = [one for one in board.standings if one.dag_id in readable and connection in ("", one.connection)]
        faults = {one.connection: board.faults[one.connection] for one in seen if one.connection in board.faults}
        for place in sorted({one.connection for one in seen} - faults.keys()):
            rows = await self._ask(place, ("batch", batch_id), lambda o: o.batch(batch_id))
            if rows:
                one = await self._standing(request, rows.batch["pipeline"], place)
                return await self._html(request, "batch.html", one=one, rows=rows)
        raise next(iter(faults.values()), HTTPException(404, _NOTHING_HERE))

    async def dead_letters(
        self,
        request: Request,
        pipeline: str,
        connection: str = "",
        reason: str = "",
        standing: str = "unresolved",
        before: str = "",
        record: str = "",
    ) -> Response:
        """Dead letters of a pipeline, or one of them with its payload."""
        one = await self._known(request, pipeline, connection)
        may_see = await self._may_see_payloads(request, one)
        if record:
            return await self._record(request, one, record, may_see=may_see)
        page = DeadLetterPage(_standing_of(standing), reason or None, read_cursor(before))
        counts, letters = await self._ask(
            one.connection, ("dead letters", pipeline, page), lambda o: o.dead_letters(pipeline, page)
        )
        return await self._html(
            request,
            "dead_letters.html",
            one=one,
            counts=counts,
            letters=letters,
            page=page,
            standing=standing,
            may_see=may_see,
            has_payloads=self._settings.has_payloads,
        )

    async def _record(self, request: Request, one: Standing, record: str, *, may_see: bool) -> Response:
        place = read_place(record)
        if place is None or not may_see:
            raise HTTPException(404, _NOTHING_HERE)
        overview = partial(self._overview, one.connection)
        letter = await self._answers.run(
            one.connection, lambda: overview().dead_letter(one.pipeline, place, SHOWN_BYTES)
        )
        if letter is None:
            raise HTTPException(404, _NOTHING_HERE)
        return await self._html(request, "record.html", one=one, letter=letter, shown_bytes=SHOWN_BYTES)

    async def download(
        self,
        request: Request,
        pipeline: str,
        connection: str = "",
        reason: str = "",
        standing: str = "unresolved",
    ) -> Response:
        """Dead letters as JSON lines, as the command ``dead-letters export`` writes them."""
        one = await self._known(request, pipeline, connection)
        if not await self._may_see_payloads(request, one):
            raise HTTPException(404, _NOTHING_HERE)
        page = DeadLetterPage(_standing_of(standing), reason or None)
        lines = await self._answers.run(
            one.connection, lambda: _lines(self._overview(one.connection).all_dead_letters(pipeline, page))
        )
        # The first page is read before the answer begins: a fault has a page, and not half a file.
        first = await self._answers.run(one.connection, lambda: next(lines, b""))
        headers = {"Content-Disposition": f'attachment; filename="{one.pipeline}-dead-letters.jsonl"'}
        body = self._stream(one.connection, first, lines)
        return StreamingResponse(body, media_type="application/x-ndjson", headers=headers)

    async def _stream(self, connection: str, first: bytes, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
        part = first
        while part:
            yield part
            part = await self._answers.run(connection, lambda: next(lines, b""))

    # What the pages are made of.

    async def _board(self) -> _Board:
        dags = await self._answers.ask(_AIRFLOW, "dags", self._airflow.dags)
        connections = sorted({connection for dag in dags for connection in dag.connections})
        found = await asyncio.gather(*(self._summaries(c, dags) for c in connections), return_exceptions=True)
        faults = {c: _known_fault(rows) for c, rows in zip(connections, found, strict=True) if _is_fault(rows)}
        now = datetime.now(UTC)
        standings: list[Standing] = []
        for connection, rows in zip(connections, found, strict=True):
            if isinstance(rows, BaseException):
                standings += unknown_standings(connection, dags, faults[connection], now)
            else:
                standings += known_standings(connection, dags, rows, self._settings.late_after)
        return _Board(sorted(standings, key=lambda one: (one.rank, one.pipeline, one.connection)), faults, now)

    async def _summaries(self, connection: str, dags: Sequence[DagFacts]) -> Sequence[Mapping[str, Any]]:
        named = sorted(dag.pipeline for dag in dags if dag.pipeline and connection in dag.connections)
        return await self._ask(connection, ("pipelines", *named), lambda o: o.pipelines(named))

    async def _standing(self, request: Request, pipeline: str, connection: str) -> Standing:
        board = await self._board()
        named = [o for o in board.standings if o.pipeline == pipeline and connection in ("", o.connection)]
        readable = await self._readable(request, {one.dag_id for one in named})
        for one in named:
            if one.dag_id in readable:
                return one
        raise HTTPException(404, _NOTHING_HERE)

    async def _known(self, request: Request, pipeline: str, connection: str) -> Standing:
        """Return a pipeline whose database answers; its fault otherwise."""
        one = await self._standing(request, pipeline, connection)
        if one.state is State.UNKNOWN:
            raise (await self._board()).faults[one.connection]
        return one

    async def _readable(self, request: Request, dag_ids: set[str]) -> frozenset[str]:
        reader: Reader = request.state.reader
        return await self._answers.run(_READERS, lambda: reader.readable(dag_ids))

    async def _may_see_payloads(self, request: Request, one: Standing) -> bool:
        reader: Reader = request.state.reader
        if not self._settings.has_payloads:
            return False
        return await self._answers.run(_READERS, lambda: reader.may_see_payloads(one.dag_id))

    async def _ask(self, connection: str, key: object, question: Callable[[PostgresOverview], _T]) -> _T:
        return await self._answers.ask(connection, key, lambda: question(self._overview(connection)))

    def _overview(self, connection: str) -> PostgresOverview:
        return PostgresOverview(self._airflow.postgres_params(self._settings.connections.get(connection, connection)))

    async def _html(self, request: Request, template: str, **values: Any) -> Response:
        """Render in a thread: thousands of partitions take a while, and the event loop is everybody's."""
        reader: Reader = request.state.reader
        return await self._answers.run(_READERS, lambda: _html(request, template, reader=reader, **values))


def _standing_of(name: str) -> bool | None:
    if name not in _STANDINGS:
        raise HTTPException(404, _NOTHING_HERE)
    return _STANDINGS[name]


def _lines(letters: Iterator[Mapping[str, Any]]) -> Iterator[bytes]:
    for letter in letters:
        yield f"{json.dumps(dead_letter_document(letter), ensure_ascii=False)}\n".encode()


def _is_fault(found: object) -> bool:
    return isinstance(found, BaseException)


def _known_fault(found: object) -> IngestError:
    if isinstance(found, IngestError):
        return found
    assert isinstance(found, BaseException)  # noqa: S101 - callers ask _is_fault
    raise found


# ----------
# Which pipelines there are, and whose they are: a pipeline belongs to its own DAG, else to that of its newest batch.


def known_standings(
    connection: str, dags: Sequence[DagFacts], rows: Sequence[Mapping[str, Any]], late_after: timedelta
) -> Iterator[Standing]:
    """Yield the pipelines of a database that belong to a DAG; one that two connections lead to is told once."""
    own, by_id = {dag.pipeline: dag for dag in dags if dag.pipeline}, {dag.dag_id: dag for dag in dags}
    for row in rows:
        dag = own.get(row["pipeline"]) or by_id.get(row["dag_id"] or "")
        if dag is None or connection not in dag.connections:
            continue
        place = Standing(row["pipeline"], connection, dag.dag_id, dag, row["now"], State.UNKNOWN)
        yield judge(row, place, late_after)


def unknown_standings(
    connection: str, dags: Sequence[DagFacts], fault: IngestError, now: datetime
) -> Iterator[Standing]:
    """Yield the pipelines of a database that does not answer, as far as Airflow knows them."""
    for dag in dags:
        if connection in dag.connections and dag.pipeline:
            reason = f"The ledger cannot be read: {fault.what}."
            yield Standing(dag.pipeline, connection, dag.dag_id, dag, now, State.UNKNOWN, (reason,))
