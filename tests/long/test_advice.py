"""Real applications in trouble: the verdict, and the first advice of `why`, which their own logs must bear out."""

from tests.long.rig import Rig
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

_RESTARTS_AFTER = 20.0
"""Seconds that an instance is left alone before it is killed."""
_LONGEST = 1500.0


def begun(rig: Rig, group_id: str, **properties: str) -> StreamsApplication:
    """Return an application that processes its input, to which nothing is written any more."""
    topics = {f"{group_id}-lines": 1, f"{group_id}-counts": 1}
    one = rig.application(group_id, "words", topics, properties=properties)
    one.produce(on=True)
    rig.await_verdict(group_id, "Ok")
    one.produce(on=False)
    return one


def step(rig: Rig, group_id: str, words: str) -> str:
    """Wait until the alert is open, and until `why` has these words; return what it advises to do."""

    def found() -> str:
        text = rig.run(f"streams-groups why {group_id}")
        return text if "What to do: " in text and words in text else ""

    assert wait_until(lambda: bool(found()), _LONGEST, interval=2), rig.run(f"streams-groups why {group_id}")
    return found().partition("What to do: ")[2]


def test_records_that_take_longer_than_the_poll_interval_are_no_hanging_threads(rig: Rig) -> None:
    one = begun(rig, "slow", **{"max.poll.interval.ms": "10000", "max.poll.records": "1"})
    rig.send("slow-lines", *["sleep 30"] * 100)
    advice = step(rig, "slow", "it does not stay up")
    assert advice.startswith("It restarts again and again")
    for text in (advice, one.log_file.read_text("utf-8", "replace")):
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
