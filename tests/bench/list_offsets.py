"""The ends of the logs of many partitions of one broker, and a pass over the lag of as many: seconds.

A broker on this machine opens files for each partition, so they are fewer than the 100,000 of the pure pass: what as
many would take is extrapolated from the growth of the time, and said so.
"""

from __future__ import annotations

import random
import statistics
import time
from datetime import datetime, timezone

from streaming_app.alerts.evaluate import evaluate
from streaming_app.alerts.rule import EvaluationContext
from streaming_app.config.alerts import AlertSettings
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.lag_offsets import EARLIEST, LATEST, LogEndsClient, TopicLeaders
from streaming_app.lag.group_lag import group_lags
from streaming_app.lag.model import Commit, GroupTasks, LagRow, LogEnds, Owner, TopicPartition
from streaming_app.lag.tracker import LagTracker
from tests.bench.bench_harness import Harness

TOPICS, PARTITIONS_OF_TOPIC = 40, 100
AT_ONCE = 2  # topics that are created in one request
PURE = 100_000
ROUNDS = 5
_CREATE_SECONDS = 240.0


def run(harness: Harness) -> None:
    """Print the median of some passes over the partitions of a broker."""
    measure_requests(harness.client)


def measure_requests(client: StreamsGroupClient) -> None:
    """Create the topics, and time Metadata and ListOffsets over a quarter of them and all."""
    names = [f"bench-{number}" for number in range(TOPICS)]
    for start in range(0, TOPICS, AT_ONCE):
        topics = {
            name: {"num_partitions": PARTITIONS_OF_TOPIC, "replication_factor": 1}
            for name in names[start : start + AT_ONCE]
        }
        client.admin.create_topics(topics, wait_for_metadata=False)
    ends = LogEndsClient(client.admin)
    leaders = _await_leaders(ends, names)
    medians: dict[int, float] = {}
    for count in (TOPICS // 4, TOPICS):
        keys = [(name, partition) for name in names[:count] for partition in range(PARTITIONS_OF_TOPIC)]
        for label, timestamp, committed_only in (
            ("high watermarks", LATEST, False),
            ("last stable offsets", LATEST, True),
            ("starts", EARLIEST, False),
        ):
            seconds, answered = [], 0
            for _ in range(ROUNDS):
                began = time.monotonic()
                found = ends.list_offsets(keys, leaders, timestamp, committed_only=committed_only)
                seconds.append(time.monotonic() - began)
                answered = len(found.offsets)
            if timestamp == LATEST and not committed_only:
                medians[len(keys)] = statistics.median(seconds)
            print(
                f"ListOffsets of {len(keys):,} partitions, {label}: median {statistics.median(seconds):.3f} s, most "
                f"{max(seconds):.3f} s, {answered:,} answered",
                flush=True,
            )
    (few, fast), (many, slow) = medians.items()
    each = max(0.0, slow - fast) / (many - few)
    print(f"extrapolated to {PURE:,} partitions of one leader: {slow + each * (PURE - many):.1f} s", flush=True)


def _await_leaders(ends: LogEndsClient, names: list[str]) -> dict[str, TopicLeaders]:
    """Return the leaders of all partitions, once each has one."""
    deadline = time.monotonic() + _CREATE_SECONDS
    while time.monotonic() < deadline:
        began = time.monotonic()
        leaders = ends.describe(names)
        seconds = time.monotonic() - began
        count = sum(leader >= 0 for one in leaders.values() for leader in one.leaders.values())
        if count == TOPICS * PARTITIONS_OF_TOPIC:
            print(f"Metadata of {count:,} partitions: {seconds:.2f} s", flush=True)
            return leaders
        time.sleep(1)
    raise TimeoutError(f"the broker did not create {len(names)} topics")


def run_pure(groups_count: int = 100) -> None:
    """Print the processor time of a pass over a thousand partitions of each group, without any request."""
    owners = {("0", partition): Owner(f"m{partition % 30}", f"p{partition % 10}", "host") for partition in range(100)}
    topics = {f"g{group}": [f"t{group}-{number}" for number in range(10)] for group in range(groups_count)}
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
        rows = tracker.observe(commits, ends, groups, now)
        seconds.append(time.process_time() - began)
    print(
        f"a pass over {len(keys):,} partitions in memory: median {statistics.median(seconds):.2f} s of processor time, "
        f"most {max(seconds):.2f} s",
        flush=True,
    )
    for status in ("OK", "STOPPED", "BEHIND"):
        _measure_alerts([row._replace(status=status, status_since=now - 3600, lag_seconds=3600.0) for row in rows], now)


def _measure_alerts(rows: list[LagRow], now: float) -> None:
    """Print the processor time for what is wrong, once a pass, and for the rules, every five seconds."""
    began = time.process_time()
    known = group_lags(rows, {}, now)
    summed = time.process_time() - began
    context = EvaluationContext(datetime.fromtimestamp(now, timezone.utc), lag=known)
    settings = AlertSettings().rule_settings_of()
    evaluate([], None, context, settings)
    began = time.process_time()
    findings = evaluate([], None, context, settings)
    print(
        f"{len(rows):,} partitions that are {rows[0].status}: {summed:.2f} s of processor time after a pass, "
        f"{(time.process_time() - began) * 1000:.1f} ms at an evaluation, which finds {len(findings)}",
        flush=True,
    )
