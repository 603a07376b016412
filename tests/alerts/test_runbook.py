"""The runbook: made from the code, its tables true of the code, each query answered by a warehouse."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from offsets_decoder import encode
from streaming_app.alerts import runbook
from streaming_app.alerts.durations import seconds, spelled
from streaming_app.alerts.settings import AlertSettings
from streaming_app.core.rule import GROUP_ID
from streaming_app.core.rules import RULES
from streaming_app.core.states import DESCRIPTION_RULES, STATE_RULES, description_status
from streaming_app.job.pipeline import Pipeline
from streaming_app.job.tables import Warehouse
from streaming_app.serve.warehouse import Warehouse as Served
from tests.job.frames import batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = runbook.PAGE.read_text("utf-8")
QUERIES = re.findall(r"```sql\n(.+?)```", TEXT, re.DOTALL)


def test_the_page_is_what_the_code_makes_of_it() -> None:
    assert runbook.page(TEXT) == TEXT, "run python -m streaming_app.alerts.runbook"


def test_what_is_written_by_hand_stays_and_what_is_made_is_made_anew() -> None:
    spoiled = TEXT.replace("| 9 | Stable |", "| 9 | Sable |").replace("# Runbook", "# Our runbook")
    assert runbook.page(spoiled) == TEXT.replace("# Runbook", "# Our runbook")


def test_a_marker_that_names_no_part_is_refused() -> None:
    with pytest.raises(ValueError, match="a marker for sates, and there are index,"):
        runbook.page(TEXT.replace("<!-- states,", "<!-- sates,").replace("end of states", "end of sates"))


def test_every_part_has_its_place_and_every_rule_its_heading() -> None:
    assert [name for name in runbook._PARTS if f"<!-- {name}, written by" not in TEXT] == []
    headings = re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)
    assert [name for name in RULES if headings.count(name) != 1] == []


def test_every_link_within_the_page_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert [link for link in re.findall(r"\]\(#([^)]+)\)", TEXT) if link not in anchors] == []
    files = [link.split("#")[0] for link in re.findall(r"\]\((?!#|http)([^)]+)\)", TEXT)]
    assert [file for file in files if not (runbook.PAGE.parent / file).exists()] == []


def test_the_prometheus_rules_name_headings_that_are_there() -> None:
    rules = (runbook.PAGE.parent / "prometheus" / "streams-groups.rules.yml").read_text("utf-8")
    named = set(re.findall(r"RUNBOOK\.md#(\w+)", rules))
    assert named - {heading.lower() for heading in re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)} == set()


def test_the_configuration_in_the_page_is_valid() -> None:
    examples = re.findall(r"```yaml\n(.+?)```", TEXT, re.DOTALL)
    assert examples
    for example in examples:
        AlertSettings.model_validate(yaml.safe_load(example)["alerts"])


# For each row of the table of states, a group of which its words are true, and those of no row before it.
GROUPS: tuple[dict[str, Any], ...] = (
    {"deleted": True},
    {"has_members": False},
    {"group_epoch": None},
    {"topology_epoch": None},
    {"readiness_recorded": False},
    {"validated_topology_epoch": -1},
    {"group_epoch": 8},
    {"all_members_stable": False},
    {},
)


def test_the_table_of_states_is_true_of_the_code() -> None:
    stable: dict[str, Any] = {
        "deleted": False,
        "has_members": True,
        "group_epoch": 7,
        "assignment_epoch_or_first": 7,
        "topology_epoch": 0,
        "validated_topology_epoch": 0,
        "readiness_recorded": True,
        "all_members_stable": True,
    }
    for place, differs in enumerate(GROUPS):
        group: Any = SimpleNamespace(**{**stable, **differs})
        assert next(number for number, (_, matches) in enumerate(STATE_RULES) if matches(group)) == place
    states = re.findall(r"^\| \d \| (\w+) \|", runbook._states(), re.MULTILINE)
    assert states == [state for state, _ in STATE_RULES]


def test_the_table_of_description_statuses_is_true_of_the_code() -> None:
    epochs = {
        "the log has not told the topology": (None, 3, 3),
        "stored = the topology's epoch": (3, 3, 3),
        "failed = the topology's epoch": (3, -2, 3),
        "stored = -2": (3, -2, 2),
        "stored = -1": (3, -1, 2),
        "stored = another epoch": (3, 2, 2),
    }
    rows = runbook._statuses().splitlines()[2:]
    assert len(rows) == len(epochs) == len(DESCRIPTION_RULES)
    for row, (words, three) in zip(rows, epochs.items(), strict=True):
        assert row.startswith(f"| {description_status(*three)} | {words}")


@pytest.mark.parametrize("duration", [0, 0.25, 5, 90, 300, 5400, 86_400, 691_200])
def test_durations_are_written_as_they_are_read(duration: float) -> None:
    assert seconds(spelled(duration)) == duration
    assert spelled(691_200) == "8d"


@pytest.fixture(scope="module")
def served(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A warehouse with a group whose member has not given up its task, and a record that could not be decoded."""
    path = tmp_path_factory.mktemp("runbook")
    warehouse = Warehouse(spark, str(path), "default")
    warehouse.prepare()
    group, member = {"group_id": "payments"}, {"group_id": "payments", "member_id": "m1"}
    revoking = {
        "member_epoch": 2,
        "state": 2,
        "active_tasks_pending_revocation": [{"subtopology_id": "1", "partitions": [4]}],
    }
    records = [
        encode(23, group, {"epoch": 0, "subtopologies": [{"subtopology_id": "1", "source_topics": ["a"]}]}),
        encode(17, group, {"epoch": 3, "validated_topology_epoch": 0, "last_assignment_configs": []}),
        encode(19, member, {"client_id": "worker", "client_host": "/10.1.2.3", "rebalance_timeout_ms": 45_000}),
        encode(20, group, {"assignment_epoch": 3}),
        encode(22, member, revoking),
        (encode(17, group, {"epoch": 3})[0], b"\x00\x63"),
    ]
    at = datetime(2026, 11, 21, 3, tzinfo=timezone.utc)
    rows = [(offset, at, key, value) for offset, (key, value) in enumerate(records)]
    Pipeline(warehouse, "default", "topic", lambda *_: None)(batch(spark, rows), 0)
    return Served(path)


def test_every_query_is_answered(served: Served) -> None:
    assert len(QUERIES) > len(RULES)
    for query in QUERIES:
        served.query(query.replace(GROUP_ID, "payments"))


def test_queries_find_what_they_are_for(served: Served) -> None:
    def answers(rule: str) -> list[list[dict[str, Any]]]:
        return [served.rows(sql) for sql in RULES[rule].queries("payments").values()]

    members, tasks = answers("StreamsGroupRebalanceStuck")
    assert [(row["client_host"], row["member_state"]) for row in members] == [("/10.1.2.3", "UNREVOKED_TASKS")]
    assert [(row["partition"], row["pending_revocation"]) for row in tasks] == [(4, True)]
    (why,), (topics,) = answers("StreamsGroupNotReady")
    assert (why["state"], topics["source_topics"]) == ("Reconciling", ["a"])
    (joined,) = answers("StreamsGroupEmpty")
    assert [row["kind"] for row in joined] == ["member_joined"]
    (record,), _ = answers("StreamsGroupsUndecodableRecords")
    assert (record["group_id"], record["error_kind"]) == ("payments", "UnknownValueVersion")
    (late, *_), *_ = answers("StreamsGroupDescriptionMissing")
    assert (late["description_status"], late["solicitable"]) == ("NEVER_STORED", True)
