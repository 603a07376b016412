"""A real application with state goes to the streams protocol and back, by the steps of `migrate check`."""

import json
from typing import Any

from tests.long.rig import Rig
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

GROUP = "shop"
TOPICS = {"orders": 4, "customers": 4, "by-region": 4}
TASKS = 8
CLASSIC = {"group.protocol": "classic", "num.standby.replicas": "1", "session.timeout.ms": "10000"}
MEGABYTES = 100
Answers = dict[str, tuple[str, str]]


def fill(rig: Rig, application: StreamsApplication) -> None:
    """Give the table of the application so many megabytes of state, and wait until all copies have them."""
    number = MEGABYTES * 100
    rig.fill("customers", number)

    def is_there() -> bool:
        lags = [one for instance in application.tasks() for one in instance["lags"] if one["store"] == "customers"]
        ends = sum({one["partition"]: one["end"] for one in lags}.values())
        return (
            len(lags) == 2 * TOPICS["customers"]
            and ends >= number
            and all(one["position"] >= one["end"] for one in lags)
        )

    assert wait_until(is_there, 900, interval=1), application.tasks()


def told(rig: Rig, way: str) -> Answers:
    """Return the steps of a change of the protocol, as `history` prints them: step -> time, what."""
    _, _, changes = rig.run(f"streams-groups history {GROUP} --limit 1000").partition("\n\n")
    lines = [line.split(maxsplit=5) for line in changes.splitlines() if line.startswith(way)]
    return {line[3]: (line[4], line[5] if len(line) > 5 else "") for line in lines}


def follow(rig: Rig, steps: list[dict[str, Any]], old: StreamsApplication, new: StreamsApplication) -> None:
    """Do what the steps say, with the commands that they name."""
    for step in steps:
        if step["text"].startswith("Stop every instance"):
            old.stop()
        elif step["text"].startswith("Wait until the group is Empty"):
            (command,) = step["commands"]
            assert wait_until(lambda command=command: "Empty" in rig.run(command), interval=2), rig.run(command)  # type: ignore[misc]
        elif step["text"].startswith("Set group.protocol="):
            assert step["text"].startswith(f"Set group.protocol={new.properties['group.protocol']} ")
            new.start()
            new.produce(on=True)
        else:
            if step["text"].startswith("Look at the result"):
                await_same(rig, old.properties["group.protocol"], new.properties["group.protocol"])
            for command in step["commands"]:
                print(f"$ {command}\n{without_log(rig.run(command))}")


def without_log(text: str) -> str:
    """Return what a tool prints, without the lines of its client's log."""
    return "\n".join(line for line in text.splitlines() if " INFO " not in line)


def await_same(rig: Rig, old: str, new: str) -> None:
    """Wait until the log tells that the group has its tasks again, and commits."""

    def is_told() -> bool:
        steps = told(rig, f"{old} -> {new}")
        return (
            steps.get("tasks", ("", ""))[1] == f"the same as before: {TASKS} active tasks"
            and " lower than then" in steps["offsets"][1]
            and not steps["offsets"][1].startswith("0 of ")
        )

    assert wait_until(is_told, 600, interval=2), rig.run(f"streams-groups history {GROUP}")


def test_an_application_with_state_goes_to_the_streams_protocol_and_back(rig: Rig) -> None:
    classic = rig.application(GROUP, "join", TOPICS, instances=2, properties=CLASSIC)
    streams = StreamsApplication(
        rig.server, classic.directory, GROUP, "join", [*TOPICS], instances=2, properties={"commit.interval.ms": "200"}
    )
    classic.produce(on=True)
    fill(rig, classic)
    rig.settle()
    print(rig.run(f"streams-groups migrate check {GROUP}"))
    (found,) = json.loads(rig.run(f"streams-groups migrate check {GROUP} --json"))["groups"]
    assert {one["check"]: one["status"] for one in found["results"]} == {
        "state": "warning",
        "clients": "not known",
        "static members": "ok",
        "standbys": "warning",
        "warm-ups": "warning",
        "client tags": "ok",
        "session time-out": "warning",
        "other settings": "not known",
        "topology": "not known",
    }
    try:
        follow(rig, found["steps"], classic, streams)
        files = (file for file in streams.directory.glob("state*/**/*") if file.is_file())
        assert sum(file.stat().st_size for file in files) >= MEGABYTES * 1_000_000
        standbys = "SELECT DISTINCT subtopology_id, partition FROM assignments WHERE role = 'standby' AND current"
        assert wait_until(lambda: len(rig.rows(standbys)) == TASKS, interval=1)
        (found,) = json.loads(rig.run(f"streams-groups migrate check {GROUP} --json"))["groups"]
        follow(rig, found["way_back"], streams, classic)
    finally:
        streams.stop()
    print(rig.run(f"streams-groups history {GROUP} --limit 1000"))
