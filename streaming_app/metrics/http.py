"""The HTTP answers of the job: `/metrics`, `/health`, `/ready`, and `/` with links to them, as a WSGI application."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import CollectorRegistry, make_wsgi_app

from streaming_app.job.health import Health
from streaming_app.metrics.probes import Probe, alive, ready

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_LINKS = {
    "/metrics": "the metrics, for Prometheus",
    "/health": "whether the job is alive",
    "/ready": "whether it has caught up with the topic",
}

_Request = dict[str, Any]


class _Response(NamedTuple):
    status: str
    headers: list[tuple[str, str]]
    body: bytes


_Page = Callable[[_Request], _Response]


def make_app(registry: CollectorRegistry, health: Health, cluster: str) -> WSGIApplication:
    """The application. It answers with one line where it cannot, and never raises."""
    pages: Mapping[str, _Page] = {
        "/": _index(cluster),
        "/metrics": _metrics(registry),
        "/health": _probe(alive, health, cluster),
        "/ready": _probe(ready, health, cluster),
    }

    def app(environ: _Request, start: StartResponse) -> Iterable[bytes]:
        response = _respond(pages, environ)
        start(response.status, [*response.headers, ("Content-Length", str(len(response.body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]

    return app


def _respond(pages: Mapping[str, _Page], environ: _Request) -> _Response:
    page = pages.get(environ.get("PATH_INFO") or "/")
    if page is None:
        return _text(HTTPStatus.NOT_FOUND, f"Nothing is here; there are {', '.join(_LINKS)}")
    if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
        refused = _text(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are answered")
        return refused._replace(headers=[*refused.headers, ("Allow", "GET, HEAD")])
    try:
        return page(environ)
    except Exception as error:  # noqa: BLE001 - whatever it is: this request fails, and the job goes on
        return _text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")


def _metrics(registry: CollectorRegistry) -> _Page:
    """The library's own application, which chooses the format and packs the answer as the client asks."""
    wsgi = make_wsgi_app(registry)

    def page(environ: _Request) -> _Response:
        begun: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]]) -> None:
            begun.append((status, headers))

        body = b"".join(wsgi({**environ, "REQUEST_METHOD": "GET"}, start))
        return _Response(*begun[0], body)

    return page


def _probe(probe: Probe, health: Health, cluster: str) -> _Page:
    def page(_: _Request) -> _Response:
        answer = probe(health.facts, datetime.now(timezone.utc))
        status = HTTPStatus.OK if answer.good else HTTPStatus.SERVICE_UNAVAILABLE
        said = {"cluster": cluster, "status": "ok" if answer.good else "unavailable", "reason": answer.reason}
        return _response(status, "application/json", json.dumps(said) + "\n")

    return page


def _index(cluster: str) -> _Page:
    title = f"streams-groups: {html.escape(cluster)}"
    links = "".join(f'<li><a href="{path}">{path}</a>: {about}</li>' for path, about in _LINKS.items())
    page = f'<!doctype html><html lang="en"><title>{title}</title><h1>{title}</h1><ul>{links}</ul></html>\n'
    return lambda _: _response(HTTPStatus.OK, "text/html", page)


def _text(status: HTTPStatus, line: str) -> _Response:
    return _response(status, "text/plain", line + "\n")


def _response(status: HTTPStatus, kind: str, body: str) -> _Response:
    headers = [("Content-Type", f"{kind}; charset=utf-8"), ("Cache-Control", "no-store")]
    return _Response(f"{status.value} {status.phrase}", headers, body.encode())
