"""The WSGI application of the job: `/metrics`, `/health`, `/ready`, and `/` with links to them."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from http import HTTPStatus
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import CollectorRegistry, make_wsgi_app

from streaming_app.stream.health import Health
from streaming_app.web.probes import Probe, check_liveness, check_readiness

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_LINKS = {
    "/metrics": "metrics for Prometheus",
    "/health": "liveness of the job",
    "/ready": "readiness: whether the job has caught up with the topic",
}
_MAX_SCRAPES = 6  # at a time: fewer than the server has threads, so that the probes need not wait for them

_Request = dict[str, Any]


class _Response(NamedTuple):
    status: str
    headers: list[tuple[str, str]]
    body: bytes


_Handler = Callable[[_Request], _Response]


def make_app(registry: CollectorRegistry, health: Health, cluster: str) -> WSGIApplication:
    """Return the application. It responds to errors with one line, and never raises."""
    handlers: Mapping[str, _Handler] = {
        "/": _index(cluster),
        "/metrics": _limit(_metrics(registry), _MAX_SCRAPES),
        "/health": _probe(check_liveness, health, cluster),
        "/ready": _probe(check_readiness, health, cluster),
    }

    def app(environ: _Request, start: StartResponse) -> Iterable[bytes]:
        response = _respond(handlers, environ)
        start(response.status, [*response.headers, ("Content-Length", str(len(response.body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]

    return app


def _respond(handlers: Mapping[str, _Handler], environ: _Request) -> _Response:
    handler = handlers.get(environ.get("PATH_INFO") or "/")
    if handler is None:
        return _text(HTTPStatus.NOT_FOUND, f"Not found. The paths are {', '.join(_LINKS)}")
    if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
        response = _text(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are allowed")
        return response._replace(headers=[*response.headers, ("Allow", "GET, HEAD")])
    try:
        return handler(environ)
    except Exception as error:  # noqa: BLE001 - any error fails this request only, not the job
        return _text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")


def _metrics(registry: CollectorRegistry) -> _Handler:
    """Use the application of prometheus_client, which negotiates the format and the compression."""
    wsgi = make_wsgi_app(registry)

    def handle(environ: _Request) -> _Response:
        started: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]]) -> None:
            started.append((status, headers))

        body = b"".join(wsgi({**environ, "REQUEST_METHOD": "GET"}, start))
        return _Response(*started[0], body)

    return handle


def _limit(handler: _Handler, most: int) -> _Handler:
    """Return a handler that handles at most that many requests at a time, and refuses others with the status 503."""
    running = BoundedSemaphore(most)

    def handle(environ: _Request) -> _Response:
        if not running.acquire(blocking=False):
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, f"{most} such requests are running; try again")
        try:
            return handler(environ)
        finally:
            running.release()

    return handle


def _probe(probe: Probe, health: Health, cluster: str) -> _Handler:
    def handle(_: _Request) -> _Response:
        result = probe(health.status, datetime.now(timezone.utc))
        status = HTTPStatus.OK if result.ok else HTTPStatus.SERVICE_UNAVAILABLE
        body = {"cluster": cluster, "status": "ok" if result.ok else "unavailable", "reason": result.reason}
        return _response(status, "application/json", json.dumps(body) + "\n")

    return handle


def _index(cluster: str) -> _Handler:
    title = f"streams-groups: {html.escape(cluster)}"
    links = "".join(f'<li><a href="{path}">{path}</a>: {description}</li>' for path, description in _LINKS.items())
    body = f'<!doctype html><html lang="en"><title>{title}</title><h1>{title}</h1><ul>{links}</ul></html>\n'
    return lambda _: _response(HTTPStatus.OK, "text/html", body)


def _text(status: HTTPStatus, line: str) -> _Response:
    return _response(status, "text/plain", line + "\n")


def _response(status: HTTPStatus, media_type: str, body: str) -> _Response:
    headers = [("Content-Type", f"{media_type}; charset=utf-8"), ("Cache-Control", "no-store")]
    return _Response(f"{status.value} {status.phrase}", headers, body.encode())
