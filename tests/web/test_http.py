"""The HTTP responses, over real connections."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from email.message import Message
from typing import Any

import pytest

from streaming_app.config.sections import MetricsSettings
from streaming_app.errors import SetupError
from streaming_app.metrics.collector import make_registry
from streaming_app.stream.job_state import JobState
from streaming_app.web import monitoring
from streaming_app.web.monitoring import monitoring_server
from streaming_app.web.server import HttpServer
from tests.support import http_client
from tests.support.http_client import connect
from tests.support.metrics_harness import batch, group, scraped
from tests.support.waiting import MINUTES, thread_names, wait_until


@pytest.fixture
def health() -> JobState:
    return JobState()


@pytest.fixture
def start(health: JobState) -> Iterator[Callable[..., HttpServer]]:
    """Starts a server, on any free port by default."""
    started = []

    def serve(listen: str = "127.0.0.1:0", **fields: Any) -> HttpServer:
        registry = make_registry(scraped([group("a")], health, **fields), MetricsSettings())
        started.append(monitoring_server(listen, registry, health, "prod", ["Metrics.example"]))
        started[-1].start()
        return started[-1]

    yield serve
    for server in started:
        server.close()


def request(server: HttpServer, path: str, method: str = "GET", **headers: str) -> tuple[int, Message, str]:
    return http_client.request(server.url, path, method, **headers)


@pytest.mark.parametrize("path", ["/metrics", "/health", "/ready"])
def test_a_site_that_gives_its_name_to_this_address_reads_nothing(start: Callable[..., HttpServer], path: str) -> None:
    """A browser sends the name of the site (DNS rebinding)."""
    server = start()
    status, headers, body = request(server, path, Host="rebind.example:9464")
    assert (status, headers["Content-Type"]) == (421, "text/plain; charset=utf-8")
    assert body == "This name of the server is not allowed: add it to metrics.allowed_hosts\n"
    for own in ("localhost:9464", "10.1.2.3:9464", "[::1]:9464", socket.gethostname(), "metrics.example"):
        assert request(server, path, Host=own)[0] in {200, 503}, own


def test_health_and_ready_return_the_reason_as_json(start: Callable[..., HttpServer], health: JobState) -> None:
    server = start()
    status, headers, body = request(server, "/ready")
    assert (status, headers["Content-Type"]) == (503, "application/json; charset=utf-8")
    reason = "not caught up with the topic yet: still reading"
    known_until = {"groups": None}
    expected = {"cluster": "prod", "status": "unavailable", "reason": reason, "known_until": known_until}
    assert json.loads(body) == expected
    assert request(server, "/health")[0] == 200
    health.batch_done(batch())
    assert request(server, "/ready")[0] == 200
    health.failed("disk full")  # a restart would not help
    for path, expected_status in (("/health", 200), ("/ready", 503)):
        status, _, body = request(server, path)
        assert status == expected_status
        assert json.loads(body)["reason"].endswith(": disk full")


def test_a_scrape_that_fails_is_one_line_and_the_next_one_works(start: Callable[..., HttpServer]) -> None:
    broken = [True]

    def alerts() -> list[Any]:
        if broken:
            raise RuntimeError(broken.pop())
        return []

    server = start(alerts=alerts)
    status, _, body = request(server, "/metrics")
    assert (status, body) == (500, "RuntimeError: True\n")
    assert request(server, "/metrics")[0] == 200


def test_a_port_in_use_is_one_line(start: Callable[..., HttpServer]) -> None:
    used = start().url.removeprefix("http://")
    with pytest.raises(SetupError) as raised:
        start(used)
    expected = f"Cannot serve metrics at {used}: Address already in use; set metrics.listen to another address"
    assert str(raised.value) == expected


def test_silent_clients_block_neither_other_clients_nor_the_shutdown(
    start: Callable[..., HttpServer], capfd: pytest.CaptureFixture[str]
) -> None:
    server = start()
    silent = [connect(server.url) for _ in range(30)]
    slow = connect(server.url)
    slow.sendall(b"GET /metrics HT")
    disconnected = connect(server.url)
    disconnected.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    disconnected.close()
    try:
        assert request(server, "/metrics")[0] == 200
        server.close()
        assert wait_until(lambda: "metrics" not in thread_names())
        assert slow.recv(1) == b""
    finally:
        for client in (*silent, slow):
            client.close()
    assert capfd.readouterr().err == ""


def test_probes_are_answered_while_as_many_scrapes_run_as_may(start: Callable[..., HttpServer]) -> None:
    release, running = threading.Event(), []

    def alerts() -> list[Any]:
        running.append(1)
        release.wait(MINUTES)
        return []

    server = start(alerts=alerts)
    with ExitStack() as scrapes:
        hanging = [scrapes.enter_context(connect(server.url)) for _ in range(monitoring._MAX_SCRAPES)]
        for scrape in hanging:
            scrape.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert wait_until(lambda: len(running) == len(hanging))
        assert request(server, "/health")[0] == 200
        status, _, body = request(server, "/metrics")
        assert (status, body) == (503, f"{len(hanging)} such requests are running; try again\n")
        release.set()
        assert all(scrape.recv(12) == b"HTTP/1.1 200" for scrape in hanging)
    assert request(server, "/metrics")[0] == 200
