"""A real application restores hundreds of megabytes: all commands equal Kafka's own tool, and say when it is done."""

from __future__ import annotations

import base64
import os
import random
import shutil
import time
from datetime import datetime
from typing import Any, NamedTuple

from kafka import KafkaProducer
from kafka.protocol.admin import AlterClientQuotasRequest
from prometheus_client.parser import text_string_to_metric_families

from streaming_app.kafka.protocol import build
from tests.support.application_world import World
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

MEGABYTES = int(os.environ.get("MEGABYTES", "320"))
VALUE_BYTES, PARTITIONS, SHARES = 10_000, 4, (4, 3, 2, 1)
"""Of the state: partitions of a topic differ in size."""
REPORT_SECONDS = 15
"""The least that a broker allows by default as the interval of reports of a group."""
BYTES_PER_SECOND = 1_000_000
"""That a broker gives to the consumer of each of the two threads."""
METRIC = "streams_group_restore_remaining_seconds"
GROUP = "kept"


class Sample(NamedTuple):
    at: float
    left: dict[int, int]
    """By partition: what is left by the application's own word."""
    report: dict[str, Any]
    """What `describe --copies --json` prints."""
    metric: float | None


def fill(world: World, topic: str) -> None:
    """Write records that cannot be compressed."""
    chooser = random.Random(1)  # noqa: S311 - not a secret
    with KafkaProducer(bootstrap_servers=world.server, batch_size=500_000, linger_ms=50) as producer:
        for number in range(MEGABYTES * 1_000_000 // VALUE_BYTES):
            (partition,) = chooser.choices(range(PARTITIONS), SHARES)
            value = base64.b64encode(os.urandom(VALUE_BYTES * 3 // 4))
            producer.send(topic, value, f"key-{number}".encode(), partition=partition)


def throttle(world: World, client_id: str, bytes_per_second: float) -> None:
    quota = {"key": "consumer_byte_rate", "value": bytes_per_second, "remove": False}
    entry = {"entity": [{"entity_type": "client-id", "entity_name": client_id}], "ops": [quota]}
    response = world.client.admin.send_to_any(
        build(AlterClientQuotasRequest, {"entries": [entry], "validate_only": False})
    )
    assert not response.entries[0].error_code, response


def left_by_its_own_word(one: StreamsApplication) -> dict[int, int]:
    stores = [lag for instance in one.tasks() for lag in instance["lags"]]
    return {lag["partition"]: max(0, lag["end"] - lag["position"]) for lag in stores}


def metric(world: World) -> float | None:
    _, text = world.job.get("/metrics")
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples if one.name == METRIC]
    return samples[0].value if samples else None


def seconds_left(sample: Sample, ready_at: str | None) -> float | None:
    return datetime.fromisoformat(ready_at.replace("Z", "+00:00")).timestamp() - sample.at if ready_at else None


def error(estimate: float | None, actual: float) -> float | None:
    return None if estimate is None else round((estimate - actual) / actual, 3)


def errors_at(samples: list[Sample], share: float) -> dict[str, float | None]:
    """Return by task, for the process and of the metric how wrong the time left was when so much time was over."""
    began, done = samples[0].at, {}
    for sample in samples:
        for partition, left in sample.left.items():
            if not left:
                done.setdefault(partition, sample.at)
    end, found = max(done.values()), {}

    def nearest(at: float) -> Sample:
        return min(samples, key=lambda one: abs(one.at - at))

    for partition, at in sorted(done.items()):
        sample = nearest(began + share * (at - began))
        rows = [one for one in sample.report["copies"] if one["partition"] == partition]
        found[f"task 0_{partition}"] = error(seconds_left(sample, rows[0]["ready_at"]), at - sample.at)
    sample = nearest(began + share * (end - began))
    (process,) = sample.report["processes"]
    found["process"] = error(seconds_left(sample, process["ready_at"]), end - sample.at)
    found["metric"] = error(sample.metric, end - sample.at)
    return found


def test_a_restore_is_told_by_task_and_by_process_with_the_time_that_is_left(world: World) -> None:
    world.client.configure_group(GROUP, {"streams.task.offset.interval.ms": REPORT_SECONDS * 1_000})
    topics = {"values": PARTITIONS, "kept-values": PARTITIONS}
    client_ids = [f"keeper-StateUpdater-{number}-restore-consumer" for number in (1, 2)]
    slow = {"restore.consumer.fetch.max.bytes": "200000", "client.id": "keeper", "num.stream.threads": "2"}
    one = world.application(GROUP, "keep", topics, properties=slow)
    fill(world, "values")
    records = MEGABYTES * 1_000_000 // VALUE_BYTES

    def has_processed_all() -> bool:
        ends = world.client.end_offsets("kept-values")
        return sum(ends.values()) >= records

    assert wait_until(has_processed_all, 3_600, interval=1)
    group = world.compared(GROUP, one)
    group.await_equal("Stable")
    one.stop()
    group.await_equal("Empty", answering=False)
    state = one.directory / "state0"
    assert sum(file.stat().st_size for file in state.rglob("*") if file.is_file()) > 300_000_000
    shutil.rmtree(state)
    for client_id in client_ids:
        throttle(world, client_id, BYTES_PER_SECOND)

    world.happens("restores")
    began = time.time()
    one.start()
    world.produce("values", *["waits"] * 20)
    assert wait_until(lambda: sum(left_by_its_own_word(one).values()) > 0, interval=1)
    group.await_equal("Stable", answering=False)  # its threads do not count tasks that they restore
    samples, explained = list[Sample](), list[str]()

    def is_restored() -> bool:
        samples.append(Sample(time.time(), left_by_its_own_word(one), world.copies(GROUP), metric(world)))
        if world.verdict(GROUP) == "Restoring":
            if not explained:
                world.await_verdict(GROUP, "Restoring")
                group.await_equal("Stable", answering=False)
            explained.append(world.printed("why", GROUP))
        return not any(samples[-1].left.values())

    assert wait_until(is_restored, 3_600, interval=1)
    world.notes.append({"group": GROUP, "restored after": round(time.time() - began, 1), "samples": len(samples)})
    for share in (0.25, 0.5, 0.75):
        world.notes.append({"group": GROUP, "at": share, "errors": errors_at(samples, share)})
    world.await_verdict(GROUP, "Ok", "Idle")
    group.await_equal("Stable")

    assert any("restored in less than" in text for text in explained), explained
    halfway = errors_at(samples, 0.5)
    for one_of in ("process", "metric", "task 0_0"):  # the others may be too short to estimate
        found = halfway[one_of]
        assert found is not None, halfway
        assert abs(found) < 1, halfway  # it was 0.07 on a machine that did much else
    last = world.copies(GROUP)
    assert [one["ready_at"] for one in last["copies"]] == [None] * PARTITIONS
    assert metric(world) is None
