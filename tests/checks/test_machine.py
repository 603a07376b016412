import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from streaming_app.checks import machine
from streaming_app.checks.hidden import hidden_parts
from streaming_app.checks.machine import (
    check_client_properties,
    check_machine,
    check_port,
    judge_memory,
)
from streaming_app.checks.result import FAILED, OK, WARNING
from streaming_app.checks.sinks import check_sinks
from streaming_app.config.settings import SinkList
from streaming_app.errors import SetupError
from streaming_app.kafka.properties import client_properties
from streaming_app.notify.sink import Sink
from streaming_app.sandbox.child_process import reserve_port
from tests.support.receivers import HttpReceiver

GIB = 1 << 30


@pytest.mark.parametrize(
    ("total", "heap", "groups", "status"),
    [
        (5 * GIB, "2g", 100_000, OK),
        (5 * GIB - 1, "2048", 100_000, WARNING),
        (5 * GIB - 1, "2g", None, WARNING),
        (3 * GIB, "2g", 500, OK),
        (2 * GIB, "1g", 500, OK),
        (2 * GIB, "1g", 5_000, WARNING),
        (7 * GIB, "2g", 3_000_000, WARNING),
        (3 * GIB - 1, "2g", 500, FAILED),
        (5 * GIB, "5g", None, FAILED),
        (5 * GIB, "many", 1, FAILED),
    ],
)
def test_memory_is_judged_by_the_groups_and_by_the_heap(total: int, heap: str, groups: int | None, status: str) -> None:
    assert judge_memory(total, heap, groups).status == status


def test_a_container_may_use_what_its_limit_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "_CGROUP_FILES", (tmp_path / "none", limit))
    limit.write_text("1073741824\n")
    assert machine.total_memory() == GIB
    limit.write_text("max\n")
    assert machine.total_memory() != GIB


def test_a_port_in_use_is_named_a_free_one_stays_free_and_another_machine_s_cannot_be_listened_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        busy = f"127.0.0.1:{server.getsockname()[1]}"
        result = check_port(busy)
    assert (result.status, result.text) == (FAILED, f"{busy}: Address already in use")
    with reserve_port() as reserved:
        free = f"127.0.0.1:{reserved.getsockname()[1]}"
    assert check_port(free).status == check_port(free).status == OK
    assert check_port("192.0.2.1:9464").status == FAILED


def test_a_missing_java_is_one_failure_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> Path:
        raise SetupError("No Java 17 to 23 found: install one")

    monkeypatch.setattr(machine, "find_java", no_java)
    results = {result.check: result for result in check_machine(None)}
    assert results["Java"].status == FAILED
    assert results["jars"].status == OK
    assert "versions" not in results


def test_client_properties_with_secrets_that_every_user_may_read_are_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.jaas.config=x\nssl.truststore.password=y\n", "utf-8")
    properties = client_properties("broker:9092", file)
    found = {}
    for mode in (0o644, 0o640):
        file.chmod(mode)
        found[mode] = list(check_client_properties(file, properties))
    (one,) = found[0o644]
    assert (one.status, found[0o640]) == ("warning", [])
    assert one.text == f"every user may read {file}, which contains sasl.jaas.config, ssl.truststore.password"
    file.chmod(0o644)
    assert list(check_client_properties(file, {"bootstrap.servers": "b:1"})) == []
    assert list(check_client_properties(None, properties)) == []


def settings(**sink: object) -> Sequence[Sink]:
    return TypeAdapter(SinkList).validate_python([sink])


def test_a_receiver_that_nobody_listens_at_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, reserve_port() as unused:
        answers, refuses = (f"http://127.0.0.1:{one.getsockname()[1]}/" for one in (server, unused))
        reachable, unreachable = (
            result
            for url in (answers, refuses)
            for result in check_sinks(settings(type="webhook", url=url), "default", send_test=False)
        )
    assert reachable.status == OK
    assert unreachable.status == FAILED
    assert unreachable.text == f"{refuses[7:-1]}: Connection refused"


def test_a_test_notification_is_sent_and_is_over() -> None:
    with HttpReceiver() as receiver:
        (result,) = check_sinks(settings(type="webhook", url=receiver.url), "production", send_test=True)
    assert (result.check, result.status) == ("sink webhook", OK)
    firing, resolved = receiver.bodies
    assert firing["data"]["rule"] == "StreamsGroupsTest"
    assert "nothing is wrong" in firing["data"]["summary"]
    assert resolved["type"] == "alert.resolved"


def test_what_is_hidden_is_counted_by_the_right_that_is_missing_with_the_command_that_grants_it() -> None:
    errors = {
        "GROUP_AUTHORIZATION_FAILED": {"group a", "group b c"},
        "TOPIC_AUTHORIZATION_FAILED": {f"t{n}" for n in range(9)},
        "whether records wait (TOPIC_AUTHORIZATION_FAILED)": {"orders"},
        "LEADER_NOT_AVAILABLE": {"away"},
    }
    found = list(hidden_parts(errors))
    assert [(one.right, one.kind, len(one.names)) for one in found] == [
        ("Describe", "group", 2),
        ("Describe", "topic", 9),
        ("Read", "topic", 1),
    ]
    groups, topics, unread = (one.line for one in found)
    command = "grant it with kafka-acls.sh --add --allow-principal User:... --operation"
    assert groups.startswith("2 groups may not be described (a, b c): ")
    assert groups.endswith(f"; {command} Describe --group a --group 'b c'")
    assert topics.endswith(f"; {command} Describe --topic '*'")
    assert unread.endswith(f"; {command} Read --topic orders")
    assert not list(hidden_parts({}))
