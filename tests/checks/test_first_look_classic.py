"""What `check` reads of applications with the classic protocol: the last record, and one that says what it is of."""

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from streaming_app.health.verdict import DOWN, OK, PROTOCOL, Verdict
from streaming_app.job.first_look import LogTables, describe
from streaming_app.job.lag_pass import PassResult
from streaming_app.stream.group_result import FoldOptions
from tests.groups.classic_records import generation, thread
from tests.support.encode import encode
from tests.support.health_harness import NOW

RUNS, ENDED = generation(1, thread("m1")), generation(3)


@pytest.mark.parametrize(
    ("values", "states"),
    [
        ([RUNS], ["Unknown"]),
        ([RUNS, generation(2, thread("m1"), thread("m2")), ENDED], ["Empty"]),
        ([RUNS, None], []),
        ([RUNS, None, ENDED], []),
        ([ENDED], []),
    ],
    ids=["runs", "has ended", "was deleted", "was deleted, and another one ended", "nothing says what ended"],
)
def test_a_group_without_members_is_one_of_kafka_streams_if_a_record_before_says_so(
    values: list[dict[str, Any] | None], states: list[str]
) -> None:
    tables = LogTables(FoldOptions("c", "__consumer_offsets"), datetime.now(timezone.utc))
    for offset, value in enumerate(values):
        key, written = encode(2, {"group": "g"}, value)
        tables.add(SimpleNamespace(key=key, value=written, offset=offset, partition=0, timestamp=offset))
    tables.end_partition()
    assert [row["state"] for row in tables.rows.values()] == states


@pytest.mark.parametrize(
    ("protocols", "said"),
    [
        ("streams", "1 with the classic protocol and no alerts (alerts.protocols: streams): "),
        ("all", "1 with the classic protocol: "),
    ],
)
def test_what_has_no_alerts_is_said(protocols: str, said: str) -> None:
    verdicts = {
        "old": Verdict(DOWN, NOW, NOW, "no members", evidence={PROTOCOL: "classic"}),
        "new": Verdict(OK, NOW, NOW, "Offsets advance."),
    }
    lag = PassResult([], {}, at=0.0, seconds=0.0)
    text = describe(verdicts, lag, unread=0, partitions=1, protocols=protocols).text
    assert text == f"the job would say of 2 groups of Kafka Streams, {said}1 Down (old), 1 Ok"
