"""The folded logs of brokers of four releases, compared with the group descriptions that those brokers returned."""

from pathlib import Path
from random import Random

import pytest

from streaming_app.checks.compare import GROUP_ID_NOT_FOUND, has_known_state
from tests.recorded.record import VERSIONS, read
from tests.support.offsets_log import FoldedLog, RawRecord, compare_rows

_HERE = Path(__file__).parent
_KAFKA_4_1 = "4.1.2"  # this release does not write whether a group is ready, so the log does not have its state


def fold_log(records: list[RawRecord], random: Random | None = None) -> FoldedLog:
    """Fold the log in one batch, or with `random` in batches of different sizes."""
    log = FoldedLog()
    while records:
        size = random.choice((1, 1, 2, 3, 10, 40)) if random else len(records)
        log.add(records[:size])
        records = records[size:]
    return log


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tables_match_the_descriptions_of_the_broker(version: str) -> None:
    records, descriptions = read(_HERE / f"{version}.jsonl.gz")
    rows = fold_log(records).rows
    assert compare_rows(rows, descriptions) == []
    assert {group["group_id"] for group in descriptions} == rows.keys()
    existing = [group for group in descriptions if group["error_code"] != GROUP_ID_NOT_FOUND]
    assert len(existing) >= 8
    assert sum(len(group["members"]) for group in existing) >= 10
    without_state = {group["group_id"] for group in existing if not has_known_state(rows[group["group_id"]])}
    with_members = {group["group_id"] for group in existing if group["members"]}
    assert without_state == (with_members if version == _KAFKA_4_1 else set())
