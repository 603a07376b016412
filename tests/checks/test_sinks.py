import socket
from collections.abc import Sequence

from pydantic import TypeAdapter

from streaming_app.checks.result import FAILED, OK
from streaming_app.checks.sinks import check_sinks
from streaming_app.config.settings import SinkList
from streaming_app.notify.sink import Sink
from streaming_app.sandbox.child_process import reserve_port
from tests.support.receivers import HttpReceiver


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
