"""A real application restores hundreds of megabytes: all commands equal Kafka's own tool, and say when it is done."""

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
from tests.long.rig import Rig
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


def fill(rig: Rig, topic: str) -> None:
    """Write records that cannot be compressed."""
    chooser = random.Random(1)  # noqa: S311 - not a secret
    with KafkaProducer(bootstrap_servers=rig.server, batch_size=500_000, linger_ms=50) as producer:
        for number in range(MEGABYTES * 1_000_000 // VALUE_BYTES):
            (partition,) = chooser.choices(range(PARTITIONS), SHARES)
            value = base64.b64encode(os.urandom(VALUE_BYTES * 3 // 4))
            producer.send(topic, value, f"key-{number}".encode(), partition=partition)


def throttle(rig: Rig, client_id: str, bytes_per_second: float) -> None:
    quota = {"key": "consumer_byte_rate", "value": bytes_per_second, "remove": False}
    entry = {"entity": [{"entity_type": "client-id", "entity_name": client_id}], "ops": [quota]}
    response = rig.client.send_to_any(build(AlterClientQuotasRequest, {"entries": [entry], "validate_only": False}))
    assert not response.entries[0].error_code, response


def left_by_its_own_word(one: StreamsApplication) -> dict[int, int]:
    stores = [lag for instance in one.tasks() for lag in instance["lags"]]
    return {lag["partition"]: max(0, lag["end"] - lag["position"]) for lag in stores}


def metric(rig: Rig) -> float | None:
    families = text_string_to_metric_families(rig.get("/metrics"))
    samples = [one for family in families for one in family.samples if one.name == METRIC]
    return samples[0].value if samples else None


def seconds_left(sample: Sample, ready_at: str | None) -> float | None:
    return datetime.fromisoformat(ready_at.replace("Z", "+00:00")).timestamp() - sample.at if ready_at else None


def error(estimate: float | None, actual: float) -> float | None:
    return None if estimate is None else round((estimate - actual) / actual, 3)


def errors_halfway(samples: list[Sample]) -> dict[str, float | None]:
    """Return of the largest task, of the process and of the metric how wrong the time left was when half was over."""
    began, end = samples[0].at, samples[-1].at
    task_end = next(one.at for one in samples if 0 in one.left and not one.left[0])

    def nearest(at: float) -> Sample:
        return min(samples, key=lambda one: abs(one.at - at))

    of_task, of_process = nearest((began + task_end) / 2), nearest((began + end) / 2)
    row = next(one for one in of_task.report["copies"] if one["partition"] == 0)
    (process,) = of_process.report["processes"]
    return {
        "task": error(seconds_left(of_task, row["ready_at"]), task_end - of_task.at),
        "process": error(seconds_left(of_process, process["ready_at"]), end - of_process.at),
        "metric": error(of_process.metric, end - of_process.at),
    }


def test_a_restore_is_told_by_task_and_by_process_with_the_time_that_is_left(rig: Rig) -> None:
    rig.client.configure_group(GROUP, {"streams.task.offset.interval.ms": REPORT_SECONDS * 1_000})
    topics = {"values": PARTITIONS, "kept-values": PARTITIONS}
    client_ids = [f"keeper-StateUpdater-{number}-restore-consumer" for number in (1, 2)]
    slow = {"restore.consumer.fetch.max.bytes": "200000", "client.id": "keeper", "num.stream.threads": "2"}
    one = rig.application(GROUP, "keep", topics, properties=slow)
    fill(rig, "values")
    records = MEGABYTES * 1_000_000 // VALUE_BYTES

    def has_processed_all() -> bool:
        ends = rig.client.end_offsets("kept-values")
        return sum(ends.values()) >= records

    assert wait_until(has_processed_all, 3_600, interval=1)
    group = rig.compared(GROUP, one)
    group.await_equal("Stable")
    one.stop()
    group.await_equal("Empty", answering=False)
    state = one.directory / "state0"
    assert sum(file.stat().st_size for file in state.rglob("*") if file.is_file()) > 300_000_000
    shutil.rmtree(state)
    for client_id in client_ids:
        throttle(rig, client_id, BYTES_PER_SECOND)

    one.start()
    rig.send("values", *["waits"] * 20)
    assert wait_until(lambda: sum(left_by_its_own_word(one).values()) > 0, interval=1)
    group.await_equal("Stable", answering=False)  # its threads do not count tasks that they restore
    samples, explained = list[Sample](), list[str]()

    def is_restored() -> bool:
        samples.append(Sample(time.time(), left_by_its_own_word(one), rig.copies(GROUP), metric(rig)))
        if rig.verdict(GROUP) == "Restoring":
            if not explained:
                group.await_equal("Stable", answering=False)
            explained.append(rig.run(f"streams-groups why {GROUP}", may_fail=True))
        return not any(samples[-1].left.values())

    assert wait_until(is_restored, 3_600, interval=1)
    rig.await_verdict(GROUP, "Ok", "Idle")
    group.await_equal("Stable")

    assert any("restored in less than" in text for text in explained), explained
    halfway = errors_halfway(samples)
    print(halfway)
    for found in halfway.values():
        assert found is not None, halfway
        assert abs(found) < 1, halfway  # it was 0.05 with 1 GB on a machine that did much else

    def is_ready() -> bool:  # the last report of a task comes after the application has read to the end
        copies = rig.copies(GROUP)["copies"]
        return [one["ready_at"] for one in copies] == [None] * PARTITIONS and metric(rig) is None

    assert wait_until(is_ready, interval=1)
