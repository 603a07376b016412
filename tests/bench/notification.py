"""Seconds from the broker's acknowledgement of records to the webhook that receives the alert about them.

The job runs with its defaults, so rules are evaluated every 5 seconds. Each append is an unsolicited topology
description of another group at a random time: an alert with `for: 0`.
"""

from __future__ import annotations

import random
import statistics
import time
from functools import partial

from tests.bench.bench_harness import PARTITIONS, Harness, group_id
from tests.bench.freshness import await_groups
from tests.groups.encoded import FIRST_EPOCH, metadata_record
from tests.notify.receivers import HttpReceiver
from tests.waiting import wait_until

APPENDS = 30
LONGEST_PAUSE_SECONDS = 6.0
_RULE = "StreamsGroupUnsolicitedDescription"


def run(harness: Harness, groups: int) -> None:
    """Print p50 and p95 over the appends, with `groups` groups in the table."""
    name = f"notification-{groups}"
    harness.client.create_topic(name, PARTITIONS)
    harness.write_groups(name, groups)
    chance = random.Random(groups)  # noqa: S311 - no secret
    seconds = []
    with HttpReceiver() as receiver:
        sinks = [{"type": "webhook", "url": receiver.url}]
        with harness.running(name, name, lambda _line: None, sinks=sinks):
            await_groups(harness.directory / name, groups)
            for number in chance.sample(range(groups), APPENDS):
                time.sleep(chance.uniform(0, LONGEST_PAUSE_SECONDS))
                _push_unsolicited(harness, name, number)
                appended = time.monotonic()
                if not wait_until(partial(_was_notified, receiver, group_id(number)), 60):
                    raise TimeoutError(f"no notification of {group_id(number)}")
                seconds.append(time.monotonic() - appended)
    measured = sorted(seconds)
    p95 = measured[round(0.95 * len(measured)) - 1]
    print(
        f"append to received webhook, {groups:,} groups, {APPENDS} appends: "
        f"p50 {statistics.median(measured):.2f} s, p95 {p95:.2f} s, most {measured[-1]:.2f} s",
        flush=True,
    )


def _was_notified(receiver: HttpReceiver, group: str) -> bool:
    return any(body["data"]["group_id"] == group and body["data"]["rule"] == _RULE for body in receiver.bodies)


def _push_unsolicited(harness: Harness, topic: str, number: int) -> None:
    """Write the records of a description that is stored and then pushed again."""
    for stored in (-2, 0, -2, 0):
        fields = {"metadata_hash": 1, "validated_topology_epoch": 0, "stored_description_topology_epoch": stored}
        key, value = metadata_record({"group_id": group_id(number)}, FIRST_EPOCH, **fields)
        harness.producer.send(topic, key=key, value=value, partition=number % PARTITIONS)
        harness.producer.flush()
        time.sleep(0.002)  # a timestamp of its own for each operation
