"""The table "I want to add ..." of CONTRIBUTING.md: each row is carried out in a copy of the project.

Only the files that the row names are edited, and the copy must then have the new thing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas", "offsets_decoder", "streaming_app")


class Edit(NamedTuple):
    """One file of a row: `before` is replaced by `after`; an empty `before` creates the file."""

    file: str
    before: str
    after: str


class Addition(NamedTuple):
    """What is added, and a program that fails without it."""

    edits: tuple[Edit, ...]
    program: str


RECORD = """\
type = 40
name = "StreamsGroupTrial"
since = "4.5"
kip = 9999
about = "A trial."

[key]
fields = [{ name = "GroupId", type = "string", about = "The streams group." }]

[value]
versions = "0"
flexible = "0+"
fields = [{ name = "Note", type = "string", about = "Any text." }]
"""
TABLE = """\
name = "trials"
about = "A trial."
key = ["cluster", "group_id"]
order = 9
expires_by = "at"
partition_column = "source_partition"
columns = [
  { name = "cluster", type = "string", about = "The Kafka cluster." },
  { name = "group_id", type = "string", about = "The group." },
  { name = "at", type = "timestamp", about = "When." },
  { name = "source_partition", type = "int", about = "Partition of the offsets topic." },
  { name = "offset", type = "bigint", about = "Offset of the record." },
]
"""
SINK = '''\
"""A trial."""

from typing import Literal

from streaming_app.alerts.alert import Alert
from streaming_app.notify.sink import BaseSettings, Sink


class TrialSettings(BaseSettings):
    """`type: trial`."""

    type: Literal["trial"]

    def sink(self) -> Sink:
        return TrialSink(self.name)


class TrialSink(Sink):
    def send(self, alert: Alert, event: str) -> None:
        """Send nothing."""
'''
COMMAND = '''\
"""`streams-groups trial`."""

import click


@click.command()
def trial() -> None:
    """Try."""
    click.echo("tried")
'''
FOLD_ONE = """
from datetime import datetime, timezone
from offsets_decoder import decode, encode
from streaming_app.groups.fold import Fold
from streaming_app.groups.row import from_row, to_row
from streaming_app.groups.group import LogRecord

def fold(*pairs):
    one = Fold.of("g", 0, None)
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    decoded = [decode(*pair) for pair in pairs]
    one.add(LogRecord(n, at, r.record_type, r.key, r.value) for n, r in enumerate(decoded))
    one.close()
    return one

metadata = encode(17, {"group_id": "g"}, {"epoch": 7, "metadata_hash": 5})
"""

ADDITIONS = {
    "a record type": Addition(
        (
            Edit("schemas/records/40_trial.toml", "", RECORD),
            Edit(
                "streaming_app/groups/replay.py",
                "    23: _topology,\n",
                "    23: _topology,\n"
                "    40: lambda group, _key, value, _at: setattr(group, 'metadata_hash', len(value['note'])),\n",
            ),
        ),
        FOLD_ONE
        + """
from streaming_app.stream.source import WANTED_RECORDS
pair = encode(40, {"group_id": "g"}, {"note": "four"})
assert to_row("c", fold(metadata, pair).group_state)["metadata_hash"] == 4
assert "X'0028'" not in WANTED_RECORDS
""",
    ),
    "a column of `groups`": Addition(
        (
            Edit(
                "schemas/tables/groups.toml",
                '  { name = "topology_epoch",',
                '  { name = "trial", type = "int", about = "A trial." },\n  { name = "topology_epoch",',
            ),
            Edit(
                "streaming_app/groups/group.py",
                "    metadata_hash: int | None = None\n",
                "    metadata_hash: int | None = None\n    trial: int | None = None\n",
            ),
            Edit(
                "streaming_app/groups/replay.py",
                '    group.group_epoch = value["epoch"]\n',
                '    group.group_epoch = value["epoch"]\n    group.trial = 2 * value["epoch"]\n',
            ),
        ),
        FOLD_ONE
        + """
from streaming_app.stream.outputs import FOLDED_DDL
row = to_row("c", fold(metadata).group_state)
assert row["trial"] == 14
assert from_row(row).group.trial == 14
assert "trial int" in FOLDED_DDL
""",
    ),
    "a table": Addition(
        (
            Edit("schemas/tables/trials.toml", "", TABLE),
            Edit(
                "streaming_app/stream/outputs.py",
                "APPENDED = (EVENTS, QUARANTINE",
                'TRIALS = Output("trials", "trials", "new_trials")\nAPPENDED = (TRIALS, EVENTS, QUARANTINE',
            ),
            Edit(
                "streaming_app/stream/outcome.py",
                '            "groups": 1,\n',
                '            "groups": 1,\n            "new_trials": 1,\n'
                '            "trials": [{"source_partition": partition, "offset": 1}],\n',
            ),
        ),
        FOLD_ONE
        + """
from streaming_app.tables.definitions import expiring_tables, history_tables, tables
from streaming_app.stream.outcome import FoldOptions, GroupOutcome
from streaming_app.stream.outputs import COUNTS, FOLDED_DDL
for listed in (expiring_tables(), history_tables(), tables()):
    assert "trials" in [one.name for one in listed]
row = GroupOutcome(FoldOptions("c", "t")).with_group(fold(metadata))
assert row["trials"] == [{"source_partition": 0, "offset": 1}]
assert "new_trials" in COUNTS
assert "trials array<struct<at:timestamp,source_partition:int,offset:bigint>>" in FOLDED_DDL
""",
    ),
    "an alert rule": Addition(
        (
            Edit(
                "streaming_app/alerts/group_rules.py",
                "GROUP_RULES = (\n",
                "GROUP_RULES = (\n    GroupRule(\n"
                '        name="StreamsGroupTrial",\n'
                "        find=lambda group, _thresholds, context: Finding(context.now, group.group_id),\n"
                '        states=frozenset({"Stable"}),\n'
                '        meaning="A trial.",\n'
                '        queries={"Which?": "SELECT 1"},\n'
                '        steps=("Try.",),\n'
                "    ),\n",
            ),
            Edit("deploy/RUNBOOK.md", "", ""),
        ),
        """
from deploy.generate import runbook
from streaming_app.alerts.evaluate import RULES
from streaming_app.config.alerts import AlertSettings
assert "StreamsGroupTrial" in RULES
settings = AlertSettings.model_validate({"rules": {"StreamsGroupTrial": {"for": "5m"}}})
assert settings.rule_settings_of()("g")["StreamsGroupTrial"].for_seconds == 300
assert "### StreamsGroupTrial" in runbook.page()
""",
    ),
    "a sink": Addition(
        (
            Edit("streaming_app/notify/trial.py", "", SINK),
            Edit(
                "streaming_app/config/settings.py",
                "from streaming_app.notify.webhook import WebhookSettings\n",
                "from streaming_app.notify.trial import TrialSettings\n"
                "from streaming_app.notify.webhook import WebhookSettings\n",
            ),
            Edit(
                "streaming_app/config/settings.py",
                "    AlertmanagerSettings |",
                "    TrialSettings | AlertmanagerSettings |",
            ),
        ),
        """
from streaming_app.config.settings import Settings
(sink,) = Settings.model_validate({"sinks": [{"type": "trial"}]}).sinks
assert sink.sink().name == "trial"
""",
    ),
    "a metric": Addition(
        (
            Edit(
                "streaming_app/metrics/group_metrics.py",
                "GROUP_METRICS: tuple[Metric[GroupScrape], ...] = (\n",
                "GROUP_METRICS: tuple[Metric[GroupScrape], ...] = (\n"
                '    Metric("streams_group_trial", "gauge", "A trial.", single_value(lambda group: 1)),\n',
            ),
            Edit("deploy/METRICS.md", "", ""),
        ),
        """
from deploy.generate import metrics
assert "streams_group_trial" in metrics.page()
""",
    ),
    "a command": Addition(
        (
            Edit("streaming_app/cli/trial.py", "", COMMAND),
            Edit("streaming_app/cli/main.py", 'COMMANDS = (\n    "run",', 'COMMANDS = (\n    "trial",\n    "run",'),
        ),
        """
from click.testing import CliRunner
from streaming_app.cli.main import main
assert CliRunner().invoke(main, ["trial"]).output == "tried\\n"
""",
    ),
}


def table_rows() -> dict[str, tuple[set[str], str]]:
    """The table of CONTRIBUTING.md: what is added, to the files it names and the test to run."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## I want to add")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| a")
    ]
    return {thing: (set(re.findall(r"`([\w./*]+/[\w./*]+)`", files)), test) for thing, files, test in rows}


@pytest.mark.parametrize("thing", ADDITIONS)
def test_a_new_thing_needs_the_files_that_the_table_names_and_no_others(thing: str, tmp_path: Path) -> None:
    addition = ADDITIONS[thing]
    files, _ = table_rows()[thing]
    touched = {edit.file for edit in addition.edits}
    patterns = [re.compile(re.escape(name).replace(r"\*", r"[\w]+")) for name in files]
    assert all(any(pattern.fullmatch(name) for pattern in patterns) for name in touched), (touched, files)
    assert all(any(pattern.fullmatch(name) for name in touched) for pattern in patterns), (touched, files)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    for edit in addition.edits:
        file = tmp_path / edit.file
        if edit.before:
            text = file.read_text("utf-8")
            assert text.count(edit.before) == 1, f"{edit.file} no longer holds {edit.before!r} once"
            file.write_text(text.replace(edit.before, edit.after), "utf-8")
        elif edit.after:
            file.write_text(edit.after, "utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", addition.program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_each_row_of_the_table_names_files_and_tests_that_exist() -> None:
    rows = table_rows()
    assert set(ADDITIONS) <= set(rows)
    for files, test in rows.values():
        for name in files:
            assert list(ROOT.glob(name)) or "NEW" in name or list((ROOT / name).parent.glob("*")), name
        for name in re.findall(r"`(tests/[\w./]+)`", test):
            assert (ROOT / name).exists(), name
