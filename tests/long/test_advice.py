"""Real applications in trouble: the verdict, and the first advice of `why`, which their own logs must bear out."""

import re
from collections.abc import Iterator

import pytest

from streaming_app.sandbox.broker import LocalBroker
from tests.long.conftest import AT_ONCE
from tests.long.rig import Rig
from tests.support.compared_tools import SHORT_SESSIONS
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

_RESTARTS_AFTER = 20.0
"""Seconds that an instance is left alone before it is killed."""
_LONGEST = 1500.0


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("advice")
    properties = SHORT_SESSIONS | {"group.streams.max.session.timeout.ms": "60000"}
    with Rig(directory, {"alerts": AT_ONCE}, LocalBroker(directory / "broker", properties=properties)) as started:
        yield started


def topics_of(group_id: str) -> dict[str, int]:
    return {f"{group_id}-lines": 1, f"{group_id}-counts": 1}


def begun(rig: Rig, group_id: str, kind: str = "words", **properties: str) -> StreamsApplication:
    """Return an application that processes its input, to which nothing is written any more."""
    one = rig.application(group_id, kind, topics_of(group_id), properties=properties)
    one.produce(on=True)
    rig.await_verdict(group_id, "Ok")
    one.produce(on=False)
    return one


def log_of(one: StreamsApplication) -> str:
    return one.log_file.read_text("utf-8", "replace")


def step(rig: Rig, group_id: str, *words: str) -> str:
    """Wait until the alert is open, and until `why` has these words; return what it advises to do."""

    def found() -> str:
        text = rig.run(f"streams-groups why {group_id}")
        return text if "What to do: " in text and all(one in text for one in words) else ""

    assert wait_until(lambda: bool(found()), _LONGEST, interval=2), rig.run(f"streams-groups why {group_id}")
    return found().partition("What to do: ")[2]


def test_a_record_at_which_an_application_shuts_down_is_in_its_log_at_or_after_the_committed_offset(rig: Rig) -> None:
    """Its exception handler answers SHUTDOWN_CLIENT."""
    one = begun(rig, "poisoned")
    rig.send("poisoned-lines", *["good"] * 5, "poison", *["after it"] * 20)
    assert wait_until(lambda: one.pid is None)
    advice = step(rig, "poisoned", "is Down since", "no members since")
    assert advice.startswith("No members: read the end of the application's log")
    assert "`SHUTDOWN_CLIENT`" in advice
    named = re.search(r"topic=poisoned-lines, partition=0, offset=(\d+)", log_of(one))
    assert named, log_of(one)[-4000:]
    (row,) = rig.rows(
        "SELECT committed_offset FROM lag WHERE group_id = 'poisoned' AND topic = 'poisoned-lines' AND lag > 0"
    )
    assert int(named[1]) >= row["committed_offset"]


def test_an_application_whose_topology_is_refused_says_so_and_so_does_the_advice(rig: Rig) -> None:
    begun(rig, "refused").stop()
    other = rig.application("refused", "filter", topics_of("refused"), "2")
    assert wait_until(lambda: other.pid is None)
    rig.send("refused-lines", *["waits"] * 20)
    advice = step(rig, "refused", "is Down since", "no members since")
    for text in (advice, log_of(other)):
        assert "Topology updates are not supported yet" in text


def test_records_that_take_longer_than_the_poll_interval_are_no_hanging_threads(rig: Rig) -> None:
    one = begun(rig, "slow", **{"max.poll.interval.ms": "10000", "max.poll.records": "1"})
    rig.send("slow-lines", *["sleep 30"] * 100)
    advice = step(rig, "slow", "it does not stay up")
    assert advice.startswith("It restarts again and again")
    for text in (advice, log_of(one)):
        assert "poll timeout has expired" in text
    assert "thread dump" not in advice
    one.kill()


def test_an_instance_that_is_killed_again_and_again_has_no_hanging_threads(rig: Rig) -> None:
    """Its killed members are in the group until their sessions end: so it is not Empty in between."""
    rig.client.configure_group("killed", {"streams.session.timeout.ms": 45_000})
    one = begun(rig, "killed")
    rig.send("killed-lines", "sleep 1000", *["after it"] * 20)
    for _ in range(20):
        wait_until(lambda: False, _RESTARTS_AFTER)  # noqa: WAIT002 - a pause
        one.kill()
        one.start()
    for text in ("is Stalled since", "one after the other, members left after less than 20 minutes"):
        assert text in rig.run("streams-groups why killed")
    advice = step(rig, "killed", "one after the other, members left")
    assert advice.startswith("Members join and leave again and again")
    assert "thread dump" not in advice
    one.kill()
