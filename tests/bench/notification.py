"""How long it takes from a broker's acknowledgement of a group's records until a webhook has been told what they mean.

The job runs as by default, and so looks at all groups every 5 seconds. Each append is a topology description that
nobody asked for, of another group, at a random moment: an alert without grace.
"""

from __future__ import annotations

import random
import statistics
import time
from functools import partial

from offsets_decoder import encode
from tests.alerts.receivers import HttpReceiver
from tests.bench.freshness import await_groups
from tests.bench.scene import FIRST_EPOCH, PARTITIONS, Scene, group_id
from tests.waiting import wait_until

APPENDS = 30
LONGEST_PAUSE_SECONDS = 6.0
_RULE = "StreamsGroupUnsolicitedDescription"


def run(scene: Scene, groups: int) -> None:
    """Print p50 and p95 over the appends, with `groups` groups in the table."""
    name = f"notification-{groups}"
    scene.client.create_topic(name, PARTITIONS)
    scene.write_groups(name, groups)
    chance = random.Random(groups)  # noqa: S311 - no secret
    seconds = []
    with HttpReceiver() as receiver:
        sinks = [{"type": "webhook", "url": receiver.url}]
        with scene.running(name, name, lambda _line: None, sinks=sinks):
            await_groups(scene.directory / name, groups)
            for number in chance.sample(range(groups), APPENDS):
                time.sleep(chance.uniform(0, LONGEST_PAUSE_SECONDS))
                _push_unasked(scene, name, number)
                appended = time.monotonic()
                if not wait_until(partial(_is_told, receiver, group_id(number)), 60):
                    raise TimeoutError(f"nobody was told of {group_id(number)}")
                seconds.append(time.monotonic() - appended)
    measured = sorted(seconds)
    p95 = measured[round(0.95 * len(measured)) - 1]
    print(
        f"append to received webhook, {groups:,} groups, {APPENDS} appends: "
        f"p50 {statistics.median(measured):.2f} s, p95 {p95:.2f} s, most {measured[-1]:.2f} s",
        flush=True,
    )


def _is_told(receiver: HttpReceiver, group: str) -> bool:
    return any(body["data"]["group_id"] == group and body["data"]["rule"] == _RULE for body in receiver.bodies)


def _push_unasked(scene: Scene, topic: str, number: int) -> None:
    """The description is stored, and then pushed again: what the broker writes of that."""
    for stored in (-2, 0, -2, 0):
        told = {"epoch": FIRST_EPOCH, "metadata_hash": 1, "validated_topology_epoch": 0, "last_assignment_configs": []}
        key, value = encode(17, {"group_id": group_id(number)}, {**told, "stored_description_topology_epoch": stored})
        scene.producer.send(topic, key=key, value=value, partition=number % PARTITIONS)
        scene.producer.flush()
        time.sleep(0.002)  # operations of their own, which have times of their own
