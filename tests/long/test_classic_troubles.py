"""Seven troubles of real applications with the classic protocol: what the job says of each, and after how long.

It prints a line for each trouble: the verdict, and the seconds from its cause to the verdict. The patience is that of
`CONFIG`; sessions end after six seconds.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

import pytest

from streaming_app.health.verdict import BAD
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.tables.reader import quote, time_literal
from tests.long.rig import Rig
from tests.long.test_restores import throttle
from tests.support.compared_tools import SHORT_SESSIONS
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import MINUTES, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.java]

CONFIG = {
    "alerts": {
        "protocols": "all",
        "rules": {"StreamsGroupDown": {"for": "20s"}, "StreamsGroupStalled": {"for": "60s"}},
    },
    "lag": {"interval": "5s"},
}
CLASSIC = {
    "group.protocol": "classic",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "num.stream.threads": "1",
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("troubles")
    with Rig(directory, CONFIG, LocalBroker(directory / "broker", properties=SHORT_SESSIONS)) as started:
        yield started


def application(rig: Rig, group_id: str, name: str = "1", kind: str = "words", **options: object) -> StreamsApplication:
    """Start a process of an application with two partitions, which writes into its own input."""
    topics = {f"{group_id}-in": 2, f"{group_id}-out": 2}
    properties = {**CLASSIC, **dict(options.pop("properties", {}))}  # type: ignore[call-overload]
    return rig.application(group_id, kind, topics, name, properties=properties, **options)


@contextmanager
def told(rig: Rig, group_id: str, verdict: str, *words: str) -> Iterator[None]:
    """Cause a trouble within the block; wait for its verdict, whose text has these words, and print it."""
    began = time.time()
    yield
    assert wait_until(lambda: rig.verdict(group_id) == verdict, 2 * MINUTES, interval=0.5), rig.run(
        f"streams-groups why {group_id}"
    )
    seconds, text = time.time() - began, rig.run(f"streams-groups why {group_id}")
    print(f"{group_id}: {verdict} after {seconds:.0f} s; {text.splitlines()[0]}")
    assert all(word in text for word in words), text
    (row,) = rig.rows(f"SELECT evidence, since FROM group_health WHERE group_id = {quote(group_id)}")
    assert '"protocol": "classic"' in row["evidence"].replace('":"', '": "')
    assert row["since"].timestamp() >= began - 30, (row, began)  # the last commit, or the record that nobody processed


def test_all_instances_are_killed(rig: Rig) -> None:
    both = [application(rig, "killed", name) for name in ("1", "2")]
    both[0].produce(on=True)
    rig.await_verdict("killed", "Ok")
    with told(rig, "killed", "Down", "no members since", "read the end of the application's log"):
        for one in both:
            one.kill()
        rig.produce("killed-in", 20)
    rig.await_open("StreamsGroupDown", "killed")
    again = application(rig, "killed", "3")
    again.produce(on=True)
    rig.await_verdict("killed", "Ok")
    rig.await_end("StreamsGroupDown", "killed")


def test_one_of_two_instances_is_killed_and_the_other_one_goes_on(rig: Rig) -> None:
    first, second = (application(rig, "halved", name) for name in ("1", "2"))
    first.produce(on=True)
    rig.await_verdict("halved", "Ok")
    members = "SELECT process_id FROM members WHERE group_id = 'halved'"

    def committed() -> dict[int, int]:
        query = "SELECT partition, committed_offset FROM lag WHERE group_id = 'halved' AND topic = 'halved-in'"
        return {row["partition"]: row["committed_offset"] or 0 for row in rig.rows(query)}

    assert wait_until(lambda: len(rig.rows(members)) == 2)
    began = time_literal(datetime.now(timezone.utc))
    second.kill()
    assert wait_until(lambda: len(rig.rows(members)) == 1)
    before = committed()
    assert wait_until(lambda: all(offset > before[one] for one, offset in committed().items()))
    since = f"SELECT verdict FROM group_health_history WHERE group_id = 'halved' AND at >= {began}"
    assert not {one["verdict"] for one in rig.rows(since)} & BAD


def test_a_poisoned_record_ends_every_instance(rig: Rig) -> None:
    one = application(rig, "poisoned")
    one.produce(on=True)
    rig.await_verdict("poisoned", "Ok")
    with told(rig, "poisoned", "Down", "no members since", "exception handler"):
        rig.send("poisoned-in", "poison", *["after it"] * 20)
        assert wait_until(lambda: one.pid is None)


def test_a_source_topic_is_missing(rig: Rig) -> None:
    rig.client.create_topic("gone-orders", 2)
    topics = ["gone-orders", "gone-missing", "gone-out"]
    directory = rig.directory / "gone"
    with told(rig, "gone", "Down", "INCOMPLETE_SOURCE_TOPIC_METADATA", "Create it, or correct its name"):
        one = StreamsApplication(rig.server, directory, "gone", "join", topics, properties=CLASSIC)
        with one:
            assert wait_until(lambda: rig.verdict("gone") == "Down", interval=0.5), rig.verdict("gone")


def test_an_instance_comes_and_goes(rig: Rig) -> None:
    steady = application(rig, "stormy")
    steady.produce(on=True)
    rig.await_verdict("stormy", "Ok")
    members = "SELECT member_id FROM members WHERE group_id = 'stormy'"
    with told(rig, "stormy", "Unstable", "members left after less than 20 minutes"):
        for _ in range(3):
            other = application(rig, "stormy", "2")
            assert wait_until(lambda: len(rig.rows(members)) == 2)
            other.kill()
            assert wait_until(lambda: len(rig.rows(members)) == 1)


def test_threads_hang_in_one_record(rig: Rig) -> None:
    """Offsets have to stand still for five minutes after a start, whatever the patience is."""
    one = application(rig, "hung", properties={"max.poll.interval.ms": "1200000"})
    one.produce(on=True)
    rig.await_verdict("hung", "Ok")
    with told(rig, "hung", "Stalled", "no offset of"):
        rig.send("hung-in", "sleep 1000", "sleep 1000")
    one.kill()


def test_an_application_restores_its_state(rig: Rig) -> None:
    """When it joins with its state, it reports how far that is: so the log shows that its tasks have state."""
    quick = {"client.id": "restorer", "restore.consumer.fetch.max.bytes": "100000"}
    one = application(rig, "restored", kind="keep", properties=quick)
    lag = "SELECT sum(lag) AS lag FROM lag WHERE group_id = 'restored' AND topic = 'restored-in'"
    stateful = "SELECT 1 AS n FROM subtopologies WHERE group_id = 'restored' AND has_state"

    def stop() -> None:
        assert wait_until(lambda: rig.rows(lag)[0]["lag"] == 0)
        one.stop()
        rig.await_verdict("restored", "Off")

    rig.fill("restored-in", 4_000)
    rig.await_verdict("restored", "Ok", "Idle")
    stop()
    one.start()
    assert wait_until(lambda: bool(rig.rows(stateful)))
    rig.await_verdict("restored", "Ok", "Idle")
    stop()
    shutil.rmtree(one.directory / "state0")
    throttle(rig, "restorer-StateUpdater-1-restore-consumer", 150_000)
    with told(rig, "restored", "Restoring", "restore state since"):
        one.start()
        rig.fill("restored-in", 20)
    throttle(rig, "restorer-StateUpdater-1-restore-consumer", 100_000_000)
    rig.await_verdict("restored", "Ok", "Idle")
