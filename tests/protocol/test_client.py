import gc
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.errors import KafkaError

from streaming_app.local.answering import reserve
from streaming_app.local.broker import LocalBroker
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.errors import GroupError, raise_for_code
from streaming_app.protocol.member import Member, settle
from streaming_app.protocol.messages import build
from streaming_app.protocol.topology import subtopology, topology

# kafka-python 3.0 leaves a socket that was refused to the garbage collector.
refused = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True)
def no_log_that_keeps_sockets() -> Iterator[None]:
    """Pytest keeps log records, they keep exceptions, and those keep the sockets beyond the test."""
    logger = logging.getLogger("kafka")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


@refused
def test_a_cluster_that_does_not_answer_raises_and_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    with reserve() as closed, pytest.raises(KafkaError):
        StreamsGroupClient(f"127.0.0.1:{closed.getsockname()[1]}", bootstrap_timeout_ms=300)
    assert set(threading.enumerate()) <= before
    gc.collect()


@refused
@pytest.mark.broker
def test_members_and_client_live_through_a_crash_of_the_broker(start_broker: Callable[..., LocalBroker]) -> None:
    own = start_broker()
    with StreamsGroupClient(own.bootstrap_server) as client:
        client.create_topic("in", 2)
        member = Member(client, "survivor", topology(subtopology("0", source_topics=["in"])))
        member.join()
        settle([member])
        epoch = member.epoch
        own.kill()
        beat = threading.Thread(target=member.heartbeat)
        beat.start()
        own.start()
        beat.join(timeout=30)
        assert not beat.is_alive()
        settle([member])
        assert member.epoch == epoch
        assert [one["member_id"] for one in client.describe(["survivor"])[0]["members"]] == [member.member_id]
    gc.collect()


@pytest.mark.broker
def test_many_groups_are_described_in_few_requests_and_in_the_order_asked_for(
    client: StreamsGroupClient, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Member(client, group_id, topology(subtopology("0", source_topics=[f"{group_id}-gone"]))).join()
    sizes = []

    def counted(message: Any, fields: Any) -> Any:
        sizes.append(len(fields["group_ids"]))
        return build(message, fields)

    monkeypatch.setattr("streaming_app.protocol.client.build", counted)
    wanted = [*(f"{group_id}-none-{number}" for number in range(249)), group_id, f"{group_id}-none-3"]
    described = client.describe(wanted)
    assert [group["group_id"] for group in described] == wanted
    assert [index for index, group in enumerate(described) if not group["error_code"]] == [249]
    assert sizes == [100, 100, 50]


@pytest.mark.broker
def test_a_group_whose_coordinator_is_busy_is_asked_for_again_alone(
    client: StreamsGroupClient, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = client.admin.ask_coordinators, []

    def first_time_busy(group_ids: list[str], *rest: Any) -> list[Any]:
        answers = ask(group_ids, *rest)
        asked.append(list(group_ids))
        if len(asked) == 1:
            answers[0]["groups"][1]["error_code"] = 14
        return answers

    monkeypatch.setattr(client.admin, "ask_coordinators", first_time_busy)
    wanted = [f"{group_id}-{number}" for number in range(3)]
    assert {group["error_code"] for group in client.describe(wanted)} == {69}
    assert asked[0] == wanted
    assert [len(ids) for ids in asked] == [3, 1]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (16, "NOT_COORDINATOR"),
        (69, "GROUP_ID_NOT_FOUND"),
        (110, "FENCED_MEMBER_EPOCH"),
        (131, "STREAMS_INVALID_TOPOLOGY_EPOCH"),
        (135, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED"),
        (9999, "UNKNOWN_ERROR_9999"),
    ],
)
def test_an_error_code_has_kafkas_name_and_the_coordinators_words(code: int, name: str) -> None:
    with pytest.raises(GroupError, match=f"^{name}: why$") as raised:
        raise_for_code(code, "why")
    assert (raised.value.code, raised.value.name, raised.value.message) == (code, name, "why")
    assert str(GroupError(code)) == name


def test_no_error_is_no_exception() -> None:
    raise_for_code(0, "ignored")
