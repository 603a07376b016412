"""The HTTP answers, asked over real connections."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from streaming_app.core.facts import JobFacts
from streaming_app.job.errors import JobError
from streaming_app.job.health import Health
from streaming_app.metrics import server as module
from streaming_app.metrics.collector import make_registry
from streaming_app.metrics.http import make_app
from streaming_app.metrics.probes import alive, ready
from streaming_app.metrics.server import Server
from streaming_app.metrics.settings import MetricsSettings
from tests.metrics.scene import NOW, batch, group, sources
from tests.waiting import wait_until


def ago(**since: float) -> Any:
    return NOW - timedelta(**since)


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def start(health: Health) -> Iterator[Callable[..., Server]]:
    """Starts a server, at any port unless told."""
    started = []

    def serve(listen: str = "127.0.0.1:0", **others: Any) -> Server:
        asked = sources([group("a")], health=health, **others)
        app = make_app(make_registry(asked, MetricsSettings()), health, "prod")
        started.append(Server(listen, app))
        return started[-1]

    yield serve
    for server in started:
        server.close()


def ask(server: Server, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    """Status, headers, body."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=20)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_health_and_ready_say_in_json_how_the_job_is(start: Callable[..., Server], health: Health) -> None:
    server = start()
    status, headers, body = ask(server, "/ready")
    assert status == 503
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    expected = {
        "cluster": "prod",
        "status": "unavailable",
        "reason": "not caught up with the topic yet: 0 offsets behind",
    }
    assert json.loads(body) == expected
    assert ask(server, "/health")[0] == 200

    health.batch_done(batch())
    assert ask(server, "/ready")[0] == 200
    health.failed("disk full")
    for path in ("/health", "/ready"):
        status, _, body = ask(server, path)
        assert status == 503
        assert json.loads(body)["reason"].endswith(": disk full")
    health.brokers(answer=False)  # a restart would not bring them back
    assert ask(server, "/health")[0] == 200
    assert ask(server, "/ready")[0] == 503


STARTED = {"started_at": ago(hours=1), "last_success_at": ago(seconds=1), "caught_up": True}


@pytest.mark.parametrize(
    ("job", "is_alive", "is_ready", "reason"),
    [
        ({}, True, True, "caught up"),
        ({"caught_up": False, "behind": 1_500_000}, True, False, "not caught up with the topic yet: 1,500,000"),
        ({"behind": 7, "behind_since": ago(seconds=59)}, True, True, "caught up"),
        ({"behind": 7, "behind_since": ago(seconds=61)}, True, False, "behind since"),
        ({"brokers_away_since": ago(hours=9)}, True, False, "no broker has answered since"),
        ({"failing_since": ago(seconds=1), "failure": "disk full"}, False, False, "disk full"),
        ({"failing_since": ago(hours=9), "failure": "x", "brokers_away_since": ago(hours=8)}, True, False, "no broker"),
        ({"last_success_at": ago(minutes=14)}, True, True, "caught up"),
        ({"last_success_at": ago(minutes=16)}, False, False, "no batch has ended since"),
        ({"last_success_at": None, "caught_up": False}, False, False, "no batch has ended since"),
        ({"last_success_at": None, "caught_up": False, "started_at": ago(minutes=2)}, True, False, "not caught up"),
    ],
)
def test_alive_and_ready_are_two_questions(job: dict[str, Any], reason: str, *, is_alive: bool, is_ready: bool) -> None:
    facts = JobFacts(**{**STARTED, **job})
    assert alive(facts, NOW).good == is_alive
    assert ready(facts, NOW).good == is_ready
    assert reason in ready(facts, NOW).reason


def test_the_index_links_to_what_there_is(start: Callable[..., Server]) -> None:
    server = start()
    status, headers, body = ask(server, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    for path in ("/metrics", "/health", "/ready"):
        assert f'href="{path}"' in body
        assert ask(server, path)[0] in {200, 503}


@pytest.mark.parametrize("path", ["/", "/metrics", "/health", "/ready", "/nothing"])
def test_head_gives_the_headers_of_get_and_no_body(start: Callable[..., Server], path: str) -> None:
    server = start()
    status, headers, body = ask(server, path)
    head_status, head_headers, head_body = ask(server, path, "HEAD")
    assert (head_status, head_body) == (status, "")
    assert head_headers["Content-Type"] == headers["Content-Type"]
    assert int(headers["Content-Length"]) == len(body.encode())
    assert int(head_headers["Content-Length"]) > 0


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/metrics/../health", "/%2e%2e/etc/passwd"])
def test_other_paths_are_not_found(start: Callable[..., Server], path: str) -> None:
    assert ask(start(), path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_not_allowed(start: Callable[..., Server], method: str) -> None:
    status, headers, body = ask(start(), "/metrics", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert body.count("\n") == 1


def test_a_scrape_that_fails_is_one_line_and_the_next_one_works(start: Callable[..., Server]) -> None:
    broken = [True]

    def alerts() -> list[Any]:
        if broken:
            raise RuntimeError(broken.pop())
        return []

    server = start(alerts=alerts)
    status, _, body = ask(server, "/metrics")
    assert (status, body) == (500, "RuntimeError: True\n")
    assert ask(server, "/metrics")[0] == 200


def test_metrics_may_be_chosen_by_name(start: Callable[..., Server]) -> None:
    _, _, body = ask(start(), "/metrics?name[]=streams_group_members")
    assert [line.split("{")[0] for line in body.splitlines() if not line.startswith("#")] == ["streams_group_members"]


def test_it_answers_on_ipv6(start: Callable[..., Server]) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    server = start("[::1]:0")
    assert server.url.startswith("http://[::1]:")
    assert ask(server, "/health")[0] == 200


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        ("256.0.0.1:1", "256.0.0.1:1"),
        ("no-such-host.invalid:1", "no-such-host.invalid:1"),
        ("192.0.2.1:1", "192.0.2.1:1"),
    ],
)
def test_an_address_that_is_not_of_this_machine_is_one_clear_line(
    start: Callable[..., Server], listen: str, why: str
) -> None:
    with pytest.raises(
        JobError, match=r"^Cannot serve metrics at .+; set metrics.listen to another address$"
    ) as refused:
        start(listen)
    assert why in str(refused.value)


def test_a_port_in_use_is_one_clear_line(start: Callable[..., Server]) -> None:
    taken = start().url.removeprefix("http://")
    with pytest.raises(JobError) as refused:
        start(taken)
    said = f"Cannot serve metrics at {taken}: Address already in use; set metrics.listen to another address"
    assert str(refused.value) == said


def connect(server: Server) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def test_clients_that_say_nothing_hold_up_neither_others_nor_the_end(
    start: Callable[..., Server], capfd: pytest.CaptureFixture[str]
) -> None:
    server = start()
    silent = [connect(server) for _ in range(30)]
    slow = connect(server)
    slow.sendall(b"GET /metrics HT")
    gone = connect(server)
    gone.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    gone.close()
    try:
        assert ask(server, "/metrics")[0] == 200
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < module._CLIENT_SECONDS
    finally:
        for client in (*silent, slow):
            client.close()
    assert capfd.readouterr().err == ""


def test_a_client_that_says_nothing_is_left_in_the_end(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module._Handler, "timeout", 0.1)
    server = start()
    with connect(server) as silent:
        assert silent.recv(1) == b""  # closed by the server
    assert wait_until(lambda: not any("process_request" in thread.name for thread in threading.enumerate()))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("listen", ["127.0.0.1:9464", "localhost:0", "0.0.0.0:65535", "[::]:9464", "[fe80::1%eth0]:1"])
def test_addresses_that_may_be_listened_at(listen: str) -> None:
    assert MetricsSettings(listen=listen).listen == listen


@pytest.mark.parametrize(
    "listen", ["9464", ":9464", "127.0.0.1", "::1:9464", "[::1]", "host:65536", "host:-1", "a b:1", ""]
)
def test_addresses_that_are_none_are_refused_with_an_example(listen: str) -> None:
    with pytest.raises(ValidationError, match=r"must be HOST:PORT, such as 127\.0\.0\.1:9464"):
        MetricsSettings(listen=listen)


def test_settings_that_are_wrong_are_refused() -> None:
    with pytest.raises(ValidationError, match="must be a regular expression"):
        MetricsSettings(groups="(")
    with pytest.raises(ValidationError):
        MetricsSettings(max_groups=-1)
    with pytest.raises(ValidationError, match="port"):
        MetricsSettings(port=1)  # type: ignore[call-arg]
    assert MetricsSettings().listen is None
