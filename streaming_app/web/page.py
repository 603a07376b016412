"""The page: the ASGI application with its paths, what it renders for each, and its server.

All links are relative, and all pages are at one level, so a proxy may serve the page under any path.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from streaming_app.errors import WarehouseError, error_line
from streaming_app.groups.group import CLASSIC
from streaming_app.job_status import inputs
from streaming_app.queries.clusters import find_staleness
from streaming_app.queries.described import search_groups
from streaming_app.queries.group_list import STREAMS
from streaming_app.queries.health import verdicts_between
from streaming_app.queries.output import as_json
from streaming_app.queries.user_sql import QueryLimits, QueryResult, run_limited
from streaming_app.report import Report, ReportOnce
from streaming_app.tables.location import Location
from streaming_app.text import digest, escape, utc_iso
from streaming_app.web import group_page
from streaming_app.web.access import Access, AccessMiddleware
from streaming_app.web.graph import MAX_NODES, Graph
from streaming_app.web.overview import Query, overview
from streaming_app.web.page_snapshot import MAX_AGE, Snapshot, SnapshotSource
from streaming_app.web.render import COMPRESSED_FROM, Rendered, render, rows_of, sql_url
from streaming_app.web.server import HttpServer, Limits
from streaming_app.web.topology_graph import TopologyGraph
from streaming_app.web.tracks import Scale, strip
from streaming_app.web.window import parse_window
from streaming_app.web.words import group_key

STATIC = Path(__file__).parent / "static"
_RENDERED_SECONDS = 5  # how old the ages in a page may be; the browser continues to count
_MAX_PARAMETERS = 30
_LIMITS = Limits(waiting=600, unread=64, requests=600)  # 500 viewers: each keeps its connection between two requests
_END_SECONDS = 1
_NOT_STORED = {"Cache-Control": "no-store"}
_QUERIES = 2  # of readers, that run at a time
_SQL_LIMITS, _JSON_LIMITS = QueryLimits(rows=1_000, size=1_000_000), QueryLimits(rows=10_000, size=5_000_000)
_NOT_RUN = "0"
_ROWS_OF = {
    **dict.fromkeys(("topic", "repartition", "changelog"), ("lag", "topic")),
    **dict.fromkeys(("source", "processor", "sink", "store"), ("description_nodes", "node")),
    "subtopology": ("assignments", "subtopology_id"),
}
"""Kind of a node -> the view that has its rows, and the column that has its name."""
_STRIP = timedelta(days=1)
_NO_GROUP = "There is no such group in the tables of this cluster."
_NO_EVENT = "The tables have no event of this group that is so old: the picture is that of now."
_DESCRIBED_LATER = "Processors and stores are those of now: the topology may have been another one then."


class Page:
    """The application. `app` is what a server of ASGI runs."""

    def __init__(
        self,
        source: SnapshotSource,
        settings: Access,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        report: Report = lambda _line: None,
    ) -> None:
        """Serve the cluster of `source`, and the other clusters of its warehouse.

        `report` gets a line for each new error.
        """
        self._source, self._settings, self._clock = source, settings, clock
        self._clusters = {source.cluster: source}
        self._report_error = ReportOnce(report)
        self._rendering: dict[tuple[str, int], asyncio.Task[Rendered]] = {}
        self._run_page, self._running = self._page(self._result, is_kept=False), threading.Semaphore(_QUERIES)
        routes = [
            Route("/", self._page(self._overview)),
            Route("/group", self._page(self._group)),
            Route("/alerts", self._page(self._alerts)),
            Route("/graph", self._page(self._graph)),
            Route("/sql", self._sql),
            Route("/changes", self._changes),
            Route("/health", lambda _: PlainTextResponse("ok\n")),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        application = Starlette(
            routes=routes,
            middleware=[Middleware(GZipMiddleware, minimum_size=COMPRESSED_FROM)],
            exception_handlers=dict.fromkeys((HTTPException, WarehouseError, Exception), self._error),
        )
        self.app = AccessMiddleware(application, settings)  # around the handling of errors, too

    def _page(
        self, respond: Callable[[Request, Snapshot, datetime], Response], *, is_kept: bool = True
    ) -> Callable[[Request], Any]:
        """Return a handler. If several requests ask for a page at the same time, one of them renders it for all."""

        async def handle(request: Request) -> Response:
            if len(request.query_params.multi_items()) > _MAX_PARAMETERS:
                raise HTTPException(HTTPStatus.BAD_REQUEST, "The URL has too many parameters")
            snapshot = await asyncio.to_thread((await self._cluster(request)).current)
            now = self._clock()
            url = f"{request.url.path}?{request.url.query}"
            etag = f'W/"{digest(json.dumps([snapshot.tag, url]), 24)}"'
            if etag in request.headers.get("if-none-match", ""):
                return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag})
            key = (etag, int(now.timestamp()) // _RENDERED_SECONDS)
            if key not in self._rendering:  # who waits for a page takes no thread from other pages

                def render() -> Rendered:
                    return Rendered(respond(request, snapshot, now))

                kept = partial(snapshot.keep, key, render) if is_kept else render
                self._rendering[key] = asyncio.create_task(asyncio.to_thread(kept))
                self._rendering[key].add_done_callback(lambda _: self._rendering.pop(key))
            rendered = await asyncio.shield(self._rendering[key])
            return rendered.answer(request, etag)

        return handle

    async def _cluster(self, request: Request) -> SnapshotSource:
        """Return the tables of the cluster in the URL. Raises HTTPException if there is none."""
        name = request.query_params.get("cluster") or self._source.cluster
        if name not in self._clusters:
            known = (await asyncio.to_thread(self._source.current)).clusters
            if name not in known:
                raise HTTPException(HTTPStatus.NOT_FOUND, "There is no such cluster in the tables.")
            self._clusters.setdefault(name, SnapshotSource(self._source.location, name, self._clock))
        return self._clusters[name]

    def _overview(self, request: Request, snapshot: Snapshot, now: datetime) -> Response:
        query = Query.parse(request.query_params)
        view = overview(
            snapshot.groups.values(), query, search=partial(snapshot.ask, search_groups), alerts=snapshot.alerts
        )
        shown = {one["group_id"]: one for one in view["rows"]}
        begin = (now - _STRIP).replace(second=0, microsecond=0)  # the same for a minute
        found = snapshot.ask(verdicts_between, tuple(shown), begin) if shown else {}
        scale = Scale(begin, now, group_page.gaps_of(snapshot, now))
        strips = {id_: strip(found.get(id_, ()), scale) for id_ in shown}
        return self._html("overview.html", snapshot, now, view=view, strips=strips)

    def _alerts(self, _: Request, snapshot: Snapshot, now: datetime) -> Response:
        return self._html("alerts.html", snapshot, now, alerts=group_page.alerts_by_rule(snapshot.alerts))

    def _group(self, request: Request, snapshot: Snapshot, now: datetime) -> Response:
        group_id, gaps = _group_id(request, snapshot), group_page.gaps_of(snapshot, now)
        one, known = snapshot.groups.get(group_id), snapshot.ask(group_page.group_now, group_id)
        has_tasks = known is not None and known["row"]["protocol"] == CLASSIC
        if one and one["group_type"] != STREAMS and not has_tasks:
            window = parse_window(request.query_params, one, now)
            return self._html(
                "other_group.html", snapshot, now, **group_page.other_group_page(snapshot, one, window, gaps)
            )
        known = self._known(request, snapshot)
        window = parse_window(request.query_params, known["row"], now)
        return self._html("group.html", snapshot, now, **group_page.group_page(snapshot, known, window, gaps))

    def _graph(self, request: Request, snapshot: Snapshot, now: datetime) -> Response:
        parameters = request.query_params
        is_open = _opened_boxes(parameters.get("open"))
        known = self._known(request, snapshot)
        shown, lags, described = known["row"], known["lags"], known["described"]
        group_id, window = shown["group_id"], parse_window(parameters, shown, now)
        level = "processors" if parameters.get("level") == "processors" else "map"
        then = snapshot.ask(group_page.then_of_group, group_id, window.until) if window.until else None
        notes = [_NO_EVENT] if window.at else []
        if then:
            if then["row"]["deleted_at"]:
                return JSONResponse(Graph(level, problem="The group did not exist at this time.").to_json())
            notes = [_DESCRIBED_LATER] if level == "processors" else []
            shown, lags = then["row"], then["lags"]
        parts, is_classic = shown["subtopologies"] or (), known["row"]["protocol"] == CLASSIC
        topology = TopologyGraph(group_id, parts, group_page.hosts_of(shown), lags["topic"], is_classic=is_classic)
        if level == "map":
            graph = topology.map()
        elif described:
            graph = topology.processors(described)
        else:
            graph = Graph(level, problem="The tables have no description of this group.")
        graph.notes[:0] = notes
        return JSONResponse(_linked(graph.folded(is_open), parameters.get("cluster"), group_id).to_json())

    async def _sql(self, request: Request) -> Response:
        """Show a query and its rows. One that another site asks for is run only once the reader wants it."""
        site, parameters = request.headers.get("sec-fetch-site", "none"), request.query_params
        if site not in {"none", "same-origin"} and parameters.get("run") != _NOT_RUN:
            return RedirectResponse(f"sql?{urlencode([*parameters.multi_items(), ('run', _NOT_RUN)])}")
        response: Response = await self._run_page(request)
        return response

    def _result(self, request: Request, snapshot: Snapshot, now: datetime) -> Response:
        parameters = request.query_params
        query, is_json = parameters.get("q", "").strip(), parameters.get("format") == "json"
        found, problem = None, None
        if query and parameters.get("run") != _NOT_RUN:
            try:
                found = self._run(query, snapshot.cluster, _JSON_LIMITS if is_json else _SQL_LIMITS)
            except WarehouseError as error:
                problem = str(error).partition(": raise --")[0]
        status = HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK
        if is_json:
            shown = {"rows": found.rows, "is_cut": found.is_cut} if found else {"error": problem}
            return Response(as_json(shown), status, media_type="application/json")
        return self._html("sql.html", snapshot, now, status, query=query, found=found, problem=problem)

    def _run(self, query: str, cluster: str, limits: QueryLimits) -> QueryResult:
        if not self._running.acquire(blocking=False):
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"{_QUERIES} queries run already: try again soon")
        try:
            return run_limited(self._source.location, cluster, query, limits)
        finally:
            self._running.release()

    async def _changes(self, request: Request) -> Response:
        """Return what tells an open page whether it is out of date, and the times that each heartbeat changes."""
        snapshot = await asyncio.to_thread((await self._cluster(request)).current)
        facts = snapshot.heartbeat.facts if snapshot.heartbeat else None
        known = {one.name: utc_iso(one.at) for one in inputs(facts) if one.at} if facts else {}
        success = utc_iso(facts.last_success_at) if facts and facts.last_success_at else None
        return JSONResponse({"tag": snapshot.tag, "success": success, "inputs": known}, headers=_NOT_STORED)

    def _known(self, request: Request, snapshot: Snapshot) -> Mapping[str, Any]:
        """Return what is known of the group of Kafka Streams in the URL. Raises HTTPException if there is none."""
        known = snapshot.ask(group_page.group_now, _group_id(request, snapshot))
        if known is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, _NO_GROUP)
        return known

    def _html(self, template: str, snapshot: Snapshot, now: datetime, status: int = 200, **values: object) -> Response:
        others = [name for name in snapshot.clusters if name != self._source.cluster]
        html = render(
            template,
            now,
            cluster=snapshot.cluster,
            cluster_parameter=None if snapshot.cluster == self._source.cluster else snapshot.cluster,
            clusters=[self._source.cluster, *others] if others else [],
            snapshot=snapshot,
            heartbeat=snapshot.heartbeat,
            job_problem=snapshot.problem or find_staleness(snapshot.heartbeat, snapshot.cluster, now, MAX_AGE),
            **values,
        )
        return Response(html, status, media_type="text/html")

    async def _error(self, _: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            status, text = HTTPStatus(error.status_code), error.detail
        elif isinstance(error, WarehouseError):
            status, text = HTTPStatus.SERVICE_UNAVAILABLE, str(error)
        else:
            status, text = HTTPStatus.INTERNAL_SERVER_ERROR, f"The page could not be made: {error_line(error)[:300]}"
            self._report_error(escape(text))
        snapshot = await asyncio.to_thread(self._source.current)
        return self._html("error.html", snapshot, self._clock(), status, title=status.phrase, text=text)


class PageServer(HttpServer):
    """The server of the page. It listens from its creation on."""

    def __init__(
        self,
        warehouse: Location | Path,
        cluster: str,
        settings: Access,
        report: Report = lambda _line: None,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        """Listen. `report` gets a line for each new error of a page. Raises SetupError if it cannot listen."""
        self._settings = settings
        source = SnapshotSource(warehouse, cluster, clock)
        page = Page(source, settings, clock, report)
        super().__init__(
            settings.listen,
            page.app,
            what="the page",
            advice="choose another address (--listen)",
            limits=_LIMITS,
            end_seconds=_END_SECONDS,
        )
        threading.Thread(target=source.current, name="first reading", daemon=True).start()  # before the first request

    @property
    def url(self) -> str:
        """The URL of the page on this machine."""
        return f"{super().url}/"

    def lines(self) -> Iterator[str]:
        """Yield lines for the user: where the page is, and who can read it."""
        yield f"The page is at {self.url}"
        if self._settings.is_open:
            yield f"Anyone who can connect to {self._settings.listen} can read the page: use a proxy with passwords"


def serve(warehouse: Location | Path, cluster: str, settings: Access, progress: Report) -> None:
    """Serve the page until SIGINT or SIGTERM. `progress` gets lines for the user. Raises SetupError."""
    server = PageServer(warehouse, cluster, settings, progress)
    where, *others = server.lines()
    for line in (f"{where} (Ctrl-C ends it)", *others):
        progress(line)
    server.run()


def _group_id(request: Request, snapshot: Snapshot) -> str:
    """Return the id of the group in the URL. Raises HTTPException if there is none."""
    parameters = request.query_params
    group_id, key = parameters.get("id"), parameters.get("key")
    if group_id is None:
        group_id = next((one for one in snapshot.groups if group_key(one) == key), None)
    if group_id is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, _NO_GROUP)
    return group_id


def _linked(graph: Graph, cluster: str | None, group_id: str) -> Graph:
    for node in graph.nodes if len(graph.nodes) <= MAX_NODES else ():  # of more nothing is drawn
        table, column = _ROWS_OF.get(node.kind, (None, ""))
        if table and (sql := rows_of(table, group_id, **{column: node.name})):
            node.href = sql_url(sql, cluster)
    return graph


def _opened_boxes(text: str | None) -> Callable[[str], bool]:
    """Return which boxes of a picture are open: all for `*`, else those in a JSON list. Raises HTTPException."""
    if text == "*":
        return lambda _: True
    try:
        names = frozenset(json.loads(text or "[]"))
    except (ValueError, TypeError, RecursionError):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "`open` is a JSON list of the names of boxes") from None
    return names.__contains__
