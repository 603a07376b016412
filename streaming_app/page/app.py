"""The ASGI application of the page: its paths, and what is rendered for each.

All links are relative, and all pages are at one level, so a proxy may serve the page under any path.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from streaming_app.errors import WarehouseError
from streaming_app.page.access import AccessMiddleware
from streaming_app.page.broker_description import Descriptions
from streaming_app.page.description import description_graph
from streaming_app.page.graph import Graph
from streaming_app.page.group_page import group_view, hosts_of, rule_text
from streaming_app.page.live import Live
from streaming_app.page.overview import Query, overview
from streaming_app.page.render import Renderer
from streaming_app.page.settings import PageSettings
from streaming_app.page.snapshot import Row, Snapshot
from streaming_app.page.source import SnapshotSource, utc_now
from streaming_app.page.timeline import RANGES, default_range
from streaming_app.page.topology_map import topology_map
from streaming_app.page.words import group_query

STATIC = Path(__file__).parent / "static"
_RENDERED_SECONDS = 5  # for so long the ages in a page may be old; the browser counts on by itself
_MAX_RENDERED = 64
_MAX_PARAMETERS = 20


class Page:
    """The application. `app` is what a server of ASGI runs."""

    def __init__(
        self,
        source: SnapshotSource,
        settings: PageSettings,
        descriptions: Descriptions | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Serve what `source` reads. Without `descriptions`, no broker is asked."""
        self._source, self._settings, self._descriptions, self._clock = source, settings, descriptions, clock
        self._renderer = Renderer()
        self._rendered: OrderedDict[tuple[str, str, int], asyncio.Task[Response]] = OrderedDict()
        self.live = Live(source.current)
        routes = [
            Route("/", self._page(self._overview)),
            Route("/group", self._page(self._group)),
            Route("/alerts", self._page(self._alerts)),
            Route("/graph", self._page(self._graph)),
            Route("/describe", self._describe, methods=["POST"]),
            Route("/events", self._events),
            Route("/health", lambda _: PlainTextResponse("ok\n")),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        base = settings.base_path
        application = Starlette(
            routes=[Mount(base, routes=routes)] if base else routes,
            middleware=[Middleware(GZipMiddleware, minimum_size=1_000)],
            exception_handlers={HTTPException: self._http_error, WarehouseError: self._error, Exception: self._error},
            lifespan=self._lifespan,
        )
        self.app = AccessMiddleware(application, settings.policy)  # around the handling of errors, too

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        first_reading = asyncio.create_task(asyncio.to_thread(self._source.current))  # before the first request
        watcher = asyncio.create_task(self.live.watch())
        try:
            yield
        finally:
            self.live.close()
            watcher.cancel()
            await asyncio.gather(watcher, first_reading, return_exceptions=True)

    def _page(self, render: Callable[[Request, Snapshot, datetime], Response]) -> Callable[[Request], Any]:
        """Return a handler. Of requests for the same page at the same time, one renders it for all."""

        async def handle(request: Request) -> Response:
            if len(request.query_params.multi_items()) > _MAX_PARAMETERS:
                raise HTTPException(HTTPStatus.BAD_REQUEST, "The URL has too many parameters")
            snapshot = await asyncio.to_thread(self._source.current)
            now = self._clock()
            url = f"{request.url.path}?{request.url.query}"
            etag = _etag(snapshot.tag, url, self._epoch_of_descriptions)
            if etag in request.headers.get("if-none-match", ""):
                return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag})
            key = (url, etag, int(now.timestamp()) // _RENDERED_SECONDS)
            task = self._rendered.get(key)
            if task is None:
                task = asyncio.create_task(asyncio.to_thread(render, request, snapshot, now))
                self._rendered[key] = task
                while len(self._rendered) > _MAX_RENDERED:
                    self._rendered.popitem(last=False)
            try:
                response = await asyncio.shield(task)
            except Exception:
                self._rendered.pop(key, None)
                raise
            headers = {**dict(response.headers), "ETag": etag}
            return Response(response.body, response.status_code, headers)

        return handle

    _epoch_of_descriptions = 0
    """Counts the answers of brokers, which change pages."""

    def _overview(self, request: Request, snapshot: Snapshot, now: datetime) -> Response:
        parameters = request.query_params
        query = Query.parse(parameters, parameters.getlist("state"))
        return self._html("overview.html", snapshot, now, view=overview(snapshot.groups, query))

    def _alerts(self, _: Request, snapshot: Snapshot, now: datetime) -> Response:
        alerts = sorted(snapshot.alerts, key=lambda one: (one.state, one.opened_at or one.pending_since), reverse=False)
        return self._html("alerts.html", snapshot, now, alerts=[(alert, rule_text(alert)) for alert in alerts])

    def _group(self, request: Request, snapshot: Snapshot, now: datetime) -> Response:
        row = self._row(request, snapshot)
        group_id = row["group_id"]
        selected = request.query_params.get("range", "")
        view = group_view(
            row,
            snapshot.events(group_id),
            snapshot.alerts,
            snapshot.lag_rows(group_id),
            described=self._described(row),
            history=lambda begin: snapshot.lag_history(group_id, begin.replace(second=0, microsecond=0)),
            diff=snapshot.topology_diff(group_id),
            selected_range=selected if selected in RANGES else default_range(row, now),
            now=now,
        )
        return self._html("group.html", snapshot, now, view=view, row=row)

    def _graph(self, request: Request, snapshot: Snapshot, _: datetime) -> Response:
        row = self._row(request, snapshot)
        if request.query_params.get("level") == "processors":
            graph = self._processors(row)
        else:
            lag = snapshot.lag_rows(row["group_id"])
            graph = topology_map(row["group_id"], row["subtopologies"] or (), hosts_of(row), lag)
        return JSONResponse(graph.to_json())

    def _processors(self, row: Row) -> Graph:
        described = self._described(row)
        if described is None:
            return Graph("processors", problem="The broker has not been asked for the description yet.")
        changelogs = [one["name"] for part in row["subtopologies"] or () for one in part["state_changelog_topics"]]
        return description_graph(described, changelogs)

    def _described(self, row: Row) -> Any:  # noqa: ANN401 - a Described or None
        if self._descriptions is None:
            return None
        return self._descriptions.get(row["group_id"], row["topology_epoch"])

    async def _describe(self, request: Request) -> Response:
        """Ask a broker for the description of a group, and go back to the group's page."""
        snapshot = await asyncio.to_thread(self._source.current)
        row = await asyncio.to_thread(self._row, request, snapshot)
        if self._descriptions is None:
            raise HTTPException(
                HTTPStatus.NOT_FOUND, "Start `streams-groups web` with --bootstrap-server to ask for descriptions"
            )
        await asyncio.to_thread(self._descriptions.fetch, row["group_id"], row["topology_epoch"])
        self._epoch_of_descriptions += 1
        return RedirectResponse(f"group?{group_query(row['group_id'])}#topology", HTTPStatus.SEE_OTHER)

    def _events(self, _: Request) -> Response:
        if self.live.is_full:
            return PlainTextResponse("Too many viewers\n", HTTPStatus.SERVICE_UNAVAILABLE)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self.live.events(), media_type="text/event-stream", headers=headers)

    def _row(self, request: Request, snapshot: Snapshot) -> Row:
        """Return the row of the group in the URL. Raises HTTPException if there is none."""
        parameters = request.query_params
        group_id = parameters.get("id")
        if group_id is None:
            group_id = snapshot.id_of(parameters.get("key", ""))
        row = None if group_id is None else snapshot.group(group_id)
        if row is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "There is no such group in the tables of this cluster.")
        return row

    def _html(self, template: str, snapshot: Snapshot, now: datetime, status: int = 200, **values: object) -> Response:
        html = self._renderer.render(
            template,
            now,
            cluster=snapshot.cluster,
            snapshot=snapshot,
            heartbeat=snapshot.heartbeat,
            job_problem=snapshot.problem or snapshot.job_problem(now),
            has_broker=self._descriptions is not None,
            **values,
        )
        return Response(html, status, media_type="text/html")

    async def _http_error(self, _: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
        text = error.detail if isinstance(error, HTTPException) else str(error)
        return await self._error_page(int(status), text)

    async def _error(self, _: Request, error: Exception) -> Response:
        if isinstance(error, WarehouseError):
            return await self._error_page(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        text = f"The page could not be made: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return await self._error_page(HTTPStatus.INTERNAL_SERVER_ERROR, text)

    async def _error_page(self, status: int, text: str) -> Response:
        snapshot = await asyncio.to_thread(self._source.current)
        title = HTTPStatus(status).phrase
        return self._html("error.html", snapshot, self._clock(), status, title=title, text=text)


def _etag(*parts: object) -> str:
    digest = hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()[:24]
    return f'W/"{digest}"'
