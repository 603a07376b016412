"""What the sources describe is shown or explained: `sources.txt` has a line for each of it, which is tested by meaning.

The place is a command, whose output has the words; a document, rule (its file of the catalog) or other file, of which
one paragraph or line of a table has them; `metrics`; or `sql`, whose columns hold values. The warehouse is the sample,
with a group that has what few groups have.
"""

import re
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.alerts.catalog import rules
from streaming_app.cli.main import main
from streaming_app.tables.definitions import tables, views
from streaming_app.tables.reader import WarehouseReader
from tests.support.documents import DOCS, ROOT
from tests.support.rows import member_row
from tests.support.sample_groups import WRITTEN, group, write_sample
from tests.support.warehouses import append

pytestmark = pytest.mark.slow

FULL = "full"
CATALOG = "streaming_app/alerts/catalog"
LINES = (Path(__file__).parent / "sources.txt").read_text("utf-8").splitlines()[1:]
SOURCES = [(source, what, place, words.split("; ")) for source, what, place, words in (one.split("|") for one in LINES)]
_TABLE = (DOCS / "facts.md").read_text("utf-8").split("## What the sources describe")[1].split("\n## ")[0]
NAMED = [
    name for line in _TABLE.splitlines() if line[:1] == "|" for name in re.findall(r"`([^`]+)`", line.split(" | ")[2])
]
"""Each name in the table of the document that says where something is shown."""
COLUMNS = {f"{one.name}.{column}" for one in (*tables(), *views()) for column in (*one.names, *one.also, "group_id")}
TABLES = {one.name for one in (*tables(), *views())}
METRICS = set(re.findall(r"`(streams_groups?\w*)", (ROOT / "deploy" / "METRICS.md").read_text("utf-8")))
COMMANDS = {place for *_, place, _ in SOURCES if place.split()[0] in main.commands and "/" not in place}
SHOWN_COLUMNS = sorted(
    {name for name in NAMED if name in COLUMNS} | {one for *_, place, some in SOURCES if place == "sql" for one in some}
)
NEEDS_A_BROKER = {"check", "decode", "verify"}
"""Commands of the table that other tests run, with a broker or without tables."""


def exists(name: str) -> bool:
    """Return whether all of this name exists, or it is no name of ours."""
    command, *options = name.split()
    if command in main.commands and (options or "." not in command):
        return {*options} <= {flag for one in main.commands[command].params for flag in one.opts}
    if "." in name and name.partition(".")[0] in TABLES:
        return name in COLUMNS
    if name.startswith("StreamsGroup") and name != "StreamsGroupDescribe":
        return name in rules()
    return not name.startswith("streams_group") or name in METRICS


def test_every_command_option_column_rule_and_metric_of_the_document_exists() -> None:
    assert [name for name in NAMED if not exists(name)] == []


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, and a group, an offset, a copy and facts of brokers that have every column of the table."""
    path, at = tmp_path_factory.mktemp("facts") / "warehouse", WRITTEN - timedelta(hours=1)
    write_sample(path, WRITTEN, hostile=False)
    member = member_row("m1", instance_id="i1", rack_id="rack-a", client_tags={"zone": "z1"}, previous_member_epoch=1)
    member["user_endpoint"] = "full.example:7070"
    epochs = [{"topology_epoch": 0, "first_seen_at": at, "description_stored_at": at, "description_stored": True}]
    configs = {"num.standby.replicas": "1", "rack.aware.assignment.tags": "zone,cluster"}
    columns = {"members": [member], "topology_epochs": epochs, "description_stale_since": at}
    append(path, "groups", group(FULL, "Stable", WRITTEN, 9, **columns, assignment_configs=configs))
    partition = {"group_id": FULL, "topic": "t", "partition": 0, "partition_time": at}
    append(path, "lag", {**partition, "status": "OK", "observed_at": at})
    committed = {"committed_offset": 5, "committed_at": at, "expire_at": at, "last_offset": 900, "source_partition": 0}
    append(path, "offset_commits", {**partition, **committed})
    copy = {"group_id": FULL, "member_id": "m1", "subtopology_id": "0", "partition": 0, "role": "standby"}
    append(
        path,
        "task_copies",
        {**copy, "process_id": "p", "acceptable_lag": 10, "stateful": True, "rate": 5.0, "ready_at": at},
    )
    fact = {"kind": "group_config", "subject": FULL, "group_id": FULL, "source": "default", "observed_at": at}
    names = {"assignor.name": "sticky", "heartbeat.interval.ms": "5000", "session.timeout.ms": "45000"}
    of_broker = {"subject": "1", "observed_at": at}
    append(
        path,
        "broker_facts",
        {**fact, "name": "streams.num.standby.replicas", "value": "1", "source": "group", "value_before": "0"},
        *({**fact, "name": f"streams.{name}", "value": value} for name, value in names.items()),
        {**of_broker, "kind": "broker_config", "name": "group.streams.max.standby.replicas", "value": "0"},
        {**of_broker, "kind": "feature", "name": "release", "value": "4.4"},
    )
    described = {
        "status": "AVAILABLE",
        "text": "Topologies:\n   Sub-topology: 0\n",
        "node_count": 1,
        "truncated": False,
    }
    newest = {"topology_epoch": 0, "content_hash": "h", "is_newest": True, "fetched_at": at, "asked_at": at}
    append(path, "descriptions", {"group_id": FULL, **newest, **described})
    return path


@pytest.mark.parametrize("column", SHOWN_COLUMNS)
def test_a_column_of_the_table_holds_values(column: str, warehouse: Path) -> None:
    table, name = column.split(".")
    (row,) = WarehouseReader(warehouse).rows(f'SELECT count("{name}") AS n FROM {table}')
    assert row["n"] > 0


def test_each_command_of_the_table_is_in_the_list_and_nothing_of_the_sources_is_left_out() -> None:
    named = {name for name in NAMED if name.split()[0] in main.commands and "." not in name}
    listed = {frozenset(word for word in one.split() if word in main.commands or word[0] == "-") for one in COMMANDS}
    assert [one for one in sorted(named - NEEDS_A_BROKER) if not any({*one.split()} <= words for words in listed)] == []
    assert len(SOURCES) == len({(source, what) for source, what, *_ in SOURCES}) == 237


@pytest.fixture(scope="module")
def outputs(warehouse: Path) -> dict[str, str]:
    """What each command prints."""
    runner, at = CliRunner(), ["--warehouse", str(warehouse)]
    return {one: runner.invoke(main, [*one.split(), *at], env={"COLUMNS": "500"}).output for one in COMMANDS}


@pytest.mark.parametrize(
    ("place", "words"),
    [pytest.param(place, words, id=f"{source}, {what}") for source, what, place, words in SOURCES if place != "sql"],
)
def test_what_the_sources_describe_is_shown_or_explained(place: str, words: list[str], outputs: dict[str, str]) -> None:
    found = [outputs[place]] if place in COMMANDS else paragraphs(place)
    wanted = [one.casefold() for one in words]
    assert any(all(one in text.casefold() for one in wanted) for text in found), f"{place} has no {words}"


@cache
def paragraphs(place: str) -> list[str]:
    """Return the paragraphs, list items and lines of tables of a file, without marks of code and line breaks."""
    path = ROOT / (
        f"{CATALOG}/{place}.toml" if place in rules() else {"metrics": "deploy/METRICS.md"}.get(place, place)
    )
    parts = re.split(r"\n\s*\n|\n(?=[|]|- |\s*\{ )", path.read_text("utf-8"))
    return [" ".join(part.replace("`", "").replace("\\\n", "").split()) for part in parts]
