"""The runbook: its configuration and all its queries are valid, and these find what they ask for."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deploy.generate import runbook
from streaming_app.alerts.catalog import GROUP_ID, rules
from streaming_app.cli.main import main
from streaming_app.config.alerts import AlertSettings
from streaming_app.notify.message import OLD_ALERTS
from streaming_app.tables.reader import WarehouseReader
from tests.support.documents import anchors
from tests.support.encode import encode
from tests.support.encoded import metadata_record
from tests.support.offsets_log import FoldedLog, RawRecord
from tests.support.sample_groups import NOW, RICH, replace_group, rich_group, write_sample
from tests.support.warehouses import append, make_warehouse

TEXT = runbook.PAGE.read_text("utf-8")
NOT_IN_SAMPLE = {"StreamsGroupInternalTopicMisconfigured", "StreamsGroupsUndecodableRecords"}
"""The sample has no such topic and no such record: their commands print no table of it."""
QUERIES = re.findall(r"```sql\n(.+?)```", TEXT, re.DOTALL)


def test_the_configuration_in_the_page_is_valid() -> None:
    examples = re.findall(r"```yaml\n(.+?)```", TEXT, re.DOTALL)
    assert examples
    for example in examples:
        AlertSettings.model_validate(yaml.safe_load(example)["alerts"])


def test_the_link_of_every_notification_leads_to_a_section() -> None:
    assert {one.lower() for one in (*rules(), OLD_ALERTS)} <= anchors(runbook.PAGE)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> WarehouseReader:
    """A warehouse with a group whose member has not revoked its task, and a record that could not be decoded."""
    path = make_warehouse(tmp_path_factory.mktemp("runbook"))
    group, member = {"group_id": "payments"}, {"group_id": "payments", "member_id": "m1"}
    revoking = [{"subtopology_id": "1", "partitions": [4]}]
    records = [
        encode(23, group, {"epoch": 0, "subtopologies": [{"subtopology_id": "1", "source_topics": ["a"]}]}),
        metadata_record(group, 3, validated_topology_epoch=0),
        encode(19, member, {"client_id": "worker", "client_host": "/10.1.2.3", "rebalance_timeout_ms": 45_000}),
        encode(20, group, {"assignment_epoch": 3}),
        encode(22, member, {"member_epoch": 2, "state": 2, "active_tasks_pending_revocation": revoking}),
    ]
    log = FoldedLog()
    log.add(RawRecord(0, offset, 1_795_230_000_000, key, value) for offset, (key, value) in enumerate(records))
    append(path, "groups", *log.rows.values())
    append(path, "group_events", *({**group, **event._asdict()} for event in log.events["payments"]))
    append(path, "quarantine", {**group, "error_kind": "UnknownValueVersion", "offset": len(records)})
    return WarehouseReader(path)


def titles(text: str) -> set[str]:
    """Return the titles of all tables in a text: the words of lines without a lower-case letter or a digit."""
    heads = (line for line in text.splitlines() if re.fullmatch(r"[A-Z#(). -]{20,}", line))
    return {word for line in heads for word in line.split()}


def test_the_tables_that_the_page_shows_have_columns_that_the_commands_print(tmp_path: Path) -> None:
    warehouse = write_sample(tmp_path, NOW)
    replace_group(warehouse, rich_group(NOW, set_aside_reason="it is too large", set_aside_at=NOW))
    known = set()
    for rule in (one for one in rules().values() if one.name not in NOT_IN_SAMPLE):
        if shown := titles((runbook.OUTPUTS / f"{rule.name}.txt").read_text("utf-8")) - {"..."}:
            command = rule.confirm.replace(GROUP_ID, RICH).split()[1:]
            printed = CliRunner().invoke(main, [*command, "--warehouse", str(warehouse)]).output
            assert shown - titles(printed) == set(), rule.name
            known.add(rule.name)
    assert len(known) > len(rules()) // 2


def test_every_query_is_valid(reader: WarehouseReader) -> None:
    assert len(QUERIES) >= len(rules())
    for query in QUERIES:
        reader.query(query.replace(GROUP_ID, "payments"))


def test_queries_find_what_their_questions_ask_for(reader: WarehouseReader) -> None:
    def results(rule: str) -> list[list[dict[str, Any]]]:
        return [reader.rows(sql) for sql in rules()[rule].queries_for("payments").values()]

    _, members = results("StreamsGroupStalled")
    assert [(row["client_host"], row["member_state"]) for row in members] == [("/10.1.2.3", "UNREVOKED_TASKS")]
    (states,) = results("StreamsGroupDown")
    assert "Reconciling" in {row["new"] for row in states}
    (record,), *_ = results("StreamsGroupsUndecodableRecords")
    assert (record["group_id"], record["error_kind"]) == ("payments", "UnknownValueVersion")
    (late, *_), *_ = results("StreamsGroupDescriptionMissing")
    assert (late["description_status"], late["solicitable"]) == ("NEVER_STORED", True)
