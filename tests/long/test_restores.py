"""A real application restores hundreds of megabytes: all commands equal Kafka's own tool, and say when it is done."""

import os
import shutil
import time
from datetime import datetime

from kafka.protocol.admin import AlterClientQuotasRequest
from prometheus_client.parser import text_string_to_metric_families

from streaming_app.kafka.protocol import build
from tests.long.rig import Rig
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

MEGABYTES = int(os.environ.get("MEGABYTES", "320"))
PARTITIONS, SHARES = 4, (4, 3, 2, 1)
"""Of the state: partitions of a topic differ in size."""
REPORT_SECONDS = 15
"""The least that a broker allows by default as the interval of reports of a group."""
BYTES_PER_SECOND = 1_000_000
"""That a broker gives to the consumer of each of the two threads."""
METRIC = "streams_group_restore_remaining_seconds"
GROUP = "kept"


def throttle(rig: Rig, client_id: str, bytes_per_second: float) -> None:
    quota = {"key": "consumer_byte_rate", "value": bytes_per_second, "remove": False}
    entry = {"entity": [{"entity_type": "client-id", "entity_name": client_id}], "ops": [quota]}
    response = rig.client.send_to_any(build(AlterClientQuotasRequest, {"entries": [entry], "validate_only": False}))
    assert not response.entries[0].error_code, response


def left_by_its_own_word(one: StreamsApplication) -> int:
    return sum(max(0, lag["end"] - lag["position"]) for instance in one.tasks() for lag in instance["lags"])


def metric(rig: Rig) -> float | None:
    families = text_string_to_metric_families(rig.get("/metrics"))
    samples = [one for family in families for one in family.samples if one.name == METRIC]
    return samples[0].value if samples else None


def seconds_left(rig: Rig) -> float | None:
    """Return what `describe --copies --json` says of the process."""
    ready_at = next((one["ready_at"] for one in rig.copies(GROUP)["processes"]), None)
    return datetime.fromisoformat(ready_at.replace("Z", "+00:00")).timestamp() - time.time() if ready_at else None


def test_a_restore_is_told_with_the_time_that_is_left(rig: Rig) -> None:
    rig.client.configure_group(GROUP, {"streams.task.offset.interval.ms": REPORT_SECONDS * 1_000})
    topics = {"values": PARTITIONS, "kept-values": PARTITIONS}
    client_ids = [f"keeper-StateUpdater-{number}-restore-consumer" for number in (1, 2)]
    slow = {"restore.consumer.fetch.max.bytes": "200000", "client.id": "keeper", "num.stream.threads": "2"}
    one = rig.application(GROUP, "keep", topics, properties=slow)
    records = MEGABYTES * 100
    rig.fill("values", records, SHARES)

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
    assert wait_until(lambda: left_by_its_own_word(one) > 0, interval=1)
    group.await_equal("Stable", answering=False)  # its threads do not count tasks that they restore
    samples, explained = list[tuple[float, float | None, float | None]](), list[str]()

    def is_restored() -> bool:
        samples.append((time.time(), seconds_left(rig), metric(rig)))
        if rig.verdict(GROUP) == "Restoring":
            if not explained:
                group.await_equal("Stable", answering=False)
            explained.append(rig.run(f"streams-groups why {GROUP}", may_fail=True))
        return not left_by_its_own_word(one)

    assert wait_until(is_restored, 3_600, interval=1)
    rig.await_verdict(GROUP, "Ok", "Idle")
    group.await_equal("Stable")

    assert any("restored in less than" in text for text in explained), explained
    end = samples[-1][0]
    at, *estimates = min(samples, key=lambda one: abs(one[0] - (samples[0][0] + end) / 2))
    print(f"{end - at:.0f} s were left when half was over; estimated {estimates}")
    for estimate in estimates:  # the error was 0.05 with 1 GB on a machine that did much else
        assert estimate is not None
        assert abs(estimate - (end - at)) < end - at

    def is_ready() -> bool:  # the last report of a task comes after the application has read to the end
        copies = rig.copies(GROUP)["copies"]
        return [one["ready_at"] for one in copies] == [None] * PARTITIONS and metric(rig) is None

    assert wait_until(is_ready, interval=1)
