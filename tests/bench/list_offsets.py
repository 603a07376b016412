"""The ends of the logs of many partitions of one broker, and a pass over the lag of as many: seconds and requests.

A broker on this machine opens files for each partition, so they are fewer than the 100,000 of the pure pass.
"""

from __future__ import annotations

import random
import statistics
import time

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.log_ends import LATEST, LogEndsClient
from streaming_app.lag.model import Commit, GroupTasks, LogEnds, Owner, TopicPartition
from streaming_app.lag.tracker import LagTracker
from tests.bench.bench_harness import Harness

TOPICS, PARTITIONS_OF_TOPIC = 100, 100
PURE = 100_000
ROUNDS = 5


def run(harness: Harness) -> None:
    """Print the median of some passes over the partitions of a broker."""
    measure_requests(harness.client)


def measure_requests(client: StreamsGroupClient) -> None:
    """Create the topics, and time Metadata and ListOffsets."""
    names = [f"bench-{number}" for number in range(TOPICS)]
    for start in range(0, TOPICS, 10):
        topics = {
            name: {"num_partitions": PARTITIONS_OF_TOPIC, "replication_factor": 1} for name in names[start : start + 10]
        }
        client.admin.create_topics(topics, wait_for_metadata=True)
    ends = LogEndsClient(client.admin)
    keys = [(name, partition) for name in names for partition in range(PARTITIONS_OF_TOPIC)]
    described = time.monotonic()
    leaders = ends.describe(names)
    print(f"Metadata of {len(keys):,} partitions: {time.monotonic() - described:.2f} s", flush=True)
    seconds, requests, answered = [], 0, 0
    for _ in range(ROUNDS):
        began = time.monotonic()
        found = ends.list_offsets(keys, leaders, LATEST)
        seconds.append(time.monotonic() - began)
        requests, answered = found.requests, len(found.offsets)
    median, most = statistics.median(seconds), max(seconds)
    print(
        f"ListOffsets of {len(keys):,} partitions: median {median:.2f} s, most {most:.2f} s, {requests} request(s), "
        f"{answered:,} answered",
        flush=True,
    )


def run_pure() -> None:
    """Print the processor time of a pass over 100,000 partitions of 100 groups, without any request."""
    owners = {("0", partition): Owner(f"m{partition % 30}", f"p{partition % 10}", "host") for partition in range(100)}
    topics = {f"g{group}": [f"t{group}-{number}" for number in range(10)] for group in range(100)}
    groups = {
        group: GroupTasks(subtopology_of=dict.fromkeys(names, "0"), owners=owners, has_members=True)
        for group, names in topics.items()
    }
    keys = [(group, name, partition) for group, names in topics.items() for name in names for partition in range(100)]
    end: dict[TopicPartition, int] = dict.fromkeys(((topic, partition) for _, topic, partition in keys), 0)
    chance, tracker, now = random.Random(PURE), LagTracker(), 1e9  # noqa: S311 - no secret
    seconds = []
    for _ in range(2 * ROUNDS):
        now += 30
        end = {key: offset + chance.randint(0, 1000) for key, offset in end.items()}
        commits = {key: Commit(max(0, end[key[1:]] - chance.randint(0, 5000)), "id", 0, now - 1) for key in keys}
        ends = {key: LogEnds(offset, 0, offset, "id") for key, offset in end.items()}
        began = time.process_time()
        tracker.observe(commits, ends, groups, now)
        seconds.append(time.process_time() - began)
    print(
        f"a pass over {len(keys):,} partitions in memory: median {statistics.median(seconds):.2f} s of processor time, "
        f"most {max(seconds):.2f} s",
        flush=True,
    )
