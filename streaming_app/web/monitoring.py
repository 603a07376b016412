"""The ASGI application of the job: `/metrics`, `/health` and `/ready`."""

import asyncio
import gzip
import json
from collections.abc import Iterable
from datetime import datetime, timezone
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from streaming_app.errors import error_line
from streaming_app.job_status import check_liveness, check_readiness, inputs
from streaming_app.stream.job_state import JobState
from streaming_app.text import utc
from streaming_app.threads import in_thread
from streaming_app.web.access import Access, AccessMiddleware
from streaming_app.web.server import HttpServer

_PROBES = {"/health": check_liveness, "/ready": check_readiness}
_MAX_SCRAPES = 6  # at a time; probes need no thread
_NOT_STORED = {"Cache-Control": "no-store"}


def monitoring_server(
    listen: str, registry: CollectorRegistry, health: JobState, cluster: str, allowed_hosts: Iterable[str] = ()
) -> HttpServer:
    """Return the server of the application. Raises SetupError if it cannot listen at that address."""
    access = Access(listen, allowed_hosts=frozenset(allowed_hosts), advice="add it to metrics.allowed_hosts")
    app = AccessMiddleware(monitoring_app(registry, health, cluster), access)
    return HttpServer(listen, app, what="metrics", advice="set metrics.listen to another address")


def monitoring_app(registry: CollectorRegistry, health: JobState, cluster: str) -> ASGIApp:
    """Return the application. It answers a scrape that fails with one line."""
    running = 0

    async def metrics(request: Request) -> Response:
        nonlocal running
        if running >= _MAX_SCRAPES:
            return _line(HTTPStatus.SERVICE_UNAVAILABLE, f"{running} such requests are running; try again")
        running += 1
        try:
            return await asyncio.wrap_future(in_thread(lambda: _metrics(registry, request), "response"))
        finally:
            running -= 1

    async def probe(request: Request) -> Response:
        job = health.status
        result = _PROBES[request.url.path](job, datetime.now(timezone.utc))
        answer = {
            "cluster": cluster,
            "status": "ok" if result.ok else "unavailable",
            "reason": result.reason,
            "known_until": {one.name: one.at and utc(one.at) for one in inputs(job)},
        }
        status = HTTPStatus.OK if result.ok else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(json.dumps(answer) + "\n", status, _NOT_STORED, "application/json; charset=utf-8")

    handlers = {"/metrics": metrics, **dict.fromkeys(_PROBES, probe)}
    routes = [Route(path, handler, methods=["GET"]) for path, handler in handlers.items()]
    app = Starlette(routes=routes, exception_handlers={Exception: _fail})
    app.router.redirect_slashes = False
    return app


def _metrics(registry: CollectorRegistry, request: Request) -> Response:
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    body, headers = encode(registry), {"Content-Type": media_type}
    if gzip_accepted(request.headers.get("accept-encoding", "")):
        body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
    return Response(body, headers=headers)


async def _fail(_: Request, error: Exception) -> Response:
    return _line(HTTPStatus.INTERNAL_SERVER_ERROR, error_line(error))


def _line(status: HTTPStatus, line: str) -> Response:
    return PlainTextResponse(line + "\n", status, _NOT_STORED)
