import gc
import logging
import threading
from collections.abc import Callable, Iterator

import pytest
from kafka.errors import KafkaError

from streaming_app.local.answering import reserve
from streaming_app.local.broker import LocalBroker
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.errors import GroupError, raise_for_code
from streaming_app.protocol.member import Member, settle
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
