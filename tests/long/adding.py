"""What to touch to add a thing: the edits that add it in a copy of the project, and the table made from them.

`test_adding` carries each of them out. `python -m tests.long.adding THING`, run in the copy, then checks it there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from runpy import run_module
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COPIED = ("schemas", "offsets_decoder", "streaming_app", "deploy", "docs", "tests")
"""The directories of a copy, besides the files in the project's own."""
_MARKERS = ("<!-- what to touch, written by `python -m deploy.generate` -->", "<!-- end of what to touch -->")


class Edit(NamedTuple):
    """One edit of a file: `before`, which is there once, is replaced by `after`; an empty `before` creates the file."""

    file: str
    before: str
    after: str
    what: str = ""
    """What it is in the file, for the table."""
    place: str = ""
    """Where it may be, for the table, if not in this file only."""


class Addition(NamedTuple):
    edits: Sequence[Edit]
    generated: Sequence[str]
    """The files that `make generate` then writes."""
    tests: str
    """What to run, for the table. Of the files of tests in it, the fast tests must pass in the copy."""
    program: str = ""
    """It fails without the thing, where no generated file and no test shows it."""


_RECORD = """\
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
_TABLE = """\
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
_RULE = """\
order = 99
severity = "warning"
for = "0s"
summary = "A trial."
impact = "None."
meaning = "A trial."
confirm = "streams-groups status"
steps = ["Try."]

[queries]
"Which?" = "SELECT 1"
"""
_SINK = '''\
"""A trial."""

from collections.abc import Sequence
from typing import Literal

from streaming_app.alerts.problem import Problem
from streaming_app.notify.sink import Sink


class TrialSink(Sink):
    """`type: trial`."""

    type: Literal["trial"]

    def send(self, problems: Sequence[Problem], event: str) -> None:
        """Send nothing."""
'''
_COMMAND = '''\
"""`streams-groups trial`."""

import click


@click.command()
def trial() -> None:
    """Try."""
    click.echo("tried")
'''
_FOLD_ONE = """
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
            Edit("schemas/records/40_trial.toml", "", _RECORD, "its definition"),
            Edit(
                "streaming_app/groups/replay.py",
                "    23: _topology,\n",
                "    23: _topology,\n"
                "    40: lambda group, _key, value, _at: setattr(group, 'metadata_hash', len(value['note'])),\n",
                "if the fold reads it, its entry in `_APPLY` in",
            ),
        ),
        ("schemas/RECORDS.md",),
        "`tests/schemas`, `tests/decoder`, `tests/groups/test_fold.py`",
        _FOLD_ONE
        + """
from streaming_app.stream.source import WANTED_RECORDS
pair = encode(40, {"group_id": "g"}, {"note": "four"})
assert to_row("c", fold(metadata, pair).group)["metadata_hash"] == 4
assert "X'0028'" not in WANTED_RECORDS
""",
    ),
    "a column of `groups`": Addition(
        (
            Edit(
                "schemas/tables/groups.toml",
                '  { name = "topology_epoch",',
                '  { name = "trial", type = "int", about = "A trial." },\n  { name = "topology_epoch",',
                "its line in",
            ),
            Edit(
                "streaming_app/groups/group.py",
                "    metadata_hash: int | None = None\n",
                "    metadata_hash: int | None = None\n    trial: int | None = None\n",
                "the field of the same name in",
            ),
            Edit(
                "streaming_app/groups/replay.py",
                '    group.group_epoch = value["epoch"]\n',
                '    group.group_epoch = value["epoch"]\n    group.trial = 2 * value["epoch"]\n',
                "where it is set in",
            ),
        ),
        ("docs/table-reference.md",),
        "`tests/groups/test_fold.py`, `make lint`",
        _FOLD_ONE
        + """
from streaming_app.tables.definitions import table
row = to_row("c", fold(metadata).group)
assert row["trial"] == 14
assert from_row(row).trial == 14
assert "trial int" in table("groups").ddl
""",
    ),
    "a table": Addition(
        (
            Edit("schemas/tables/trials.toml", "", _TABLE, "its definition"),
            Edit(
                "streaming_app/stream/outputs.py",
                "APPENDED = (EVENTS, QUARANTINE",
                'APPENDED = ("trials", EVENTS, QUARANTINE',
                "its entry in",
            ),
            Edit(
                "streaming_app/stream/outcome.py",
                "            EVENTS: [self._of_group",
                '            "trials": [self._of_group(group, {"offset": 1})],\n            EVENTS: [self._of_group',
                "its rows in",
            ),
        ),
        ("docs/table-reference.md",),
        "`tests/stream/test_fold_stage.py`, `make lint`",
        _FOLD_ONE
        + """
from streaming_app.tables.definitions import history_tables, tables
from streaming_app.stream.outcome import FoldOptions, GroupOutcome
from streaming_app.stream.outputs import to_tables
for listed in (history_tables(), tables()):
    assert "trials" in [one.name for one in listed]
made = to_tables([GroupOutcome(FoldOptions("c", "t")).with_group(fold(metadata))], {})
assert made.counts["trials"] == 1
assert made.tables["trials"].select(["group_id", "source_partition", "offset"]).to_pylist() == [
    {"group_id": "g", "source_partition": 0, "offset": 1}
]
""",
    ),
    "an alert rule": Addition(
        (
            Edit("streaming_app/alerts/catalog/StreamsGroupTrial.toml", "", _RULE, "its entry"),
            Edit("deploy/outputs/StreamsGroupTrial.txt", "", "A trial.\n", "what its command prints,"),
            Edit(
                "streaming_app/alerts/conditions.py",
                "CONDITIONS: dict[str, Condition] = {\n",
                'CONDITIONS: dict[str, Condition] = {\n    "StreamsGroupTrial": Condition(),\n',
                "its condition in",
            ),
            Edit(
                "deploy/streams-groups.example.yaml",
                "\n  rules:\n",
                "\n  rules:\n    # A trial.\n    StreamsGroupTrial: {enabled: true, severity: warning, for: 0s}\n",
                "its settings in",
            ),
        ),
        ("deploy/RUNBOOK.md", "docs/alerts.md"),
        "`tests/alerts`, with a case in its `test_rules.py`, `tests/config/test_example.py`, "
        "`tests/deploy/test_runbook.py`, and an incident in `tests/histories`",
    ),
    "a sink": Addition(
        (
            Edit("streaming_app/notify/trial.py", "", _SINK, "its module"),
            Edit(
                "streaming_app/config/settings.py",
                "from streaming_app.notify.webhook import WebhookSink\n",
                "from streaming_app.notify.trial import TrialSink\n"
                "from streaming_app.notify.webhook import WebhookSink\n",
                "its settings in",
            ),
            Edit(
                "streaming_app/config/settings.py",
                "    AlertmanagerSink | AppriseSink",
                "    TrialSink | AlertmanagerSink | AppriseSink",
                "its settings in",
            ),
            Edit("deploy/streams-groups.example.yaml", "# sinks:\n", "# sinks:\n#   - type: trial\n", "its keys in"),
        ),
        (),
        "`tests/notify` and `tests/config`, which name the kinds, `tests/config/test_example.py`",
        """
from streaming_app.config.settings import Settings
(sink,) = Settings.model_validate({"sinks": [{"type": "trial"}]}).sinks
assert sink.name == "trial"
""",
    ),
    "a metric": Addition(
        (
            Edit(
                "streaming_app/metrics/group_metrics.py",
                "GROUP_METRICS: tuple[Metric[GroupScrape], ...] = (\n",
                "GROUP_METRICS: tuple[Metric[GroupScrape], ...] = (\n"
                '    Metric("streams_group_trial", "A trial.", lambda _: 1),\n',
                "its entry in",
                "streaming_app/metrics/*_metrics.py",
            ),
        ),
        ("deploy/METRICS.md",),
        "`tests/metrics`, `make lint`",
    ),
    "a command": Addition(
        (
            Edit("streaming_app/cli/trial.py", "", _COMMAND, "in a module", "streaming_app/cli/*.py"),
            Edit("streaming_app/cli/main.py", '"Run": {', '"Run": {"trial": "trial", ', "its name in"),
            Edit(
                "docs/commands.md",
                "streams-groups lag   ",
                "streams-groups trial\nstreams-groups lag   ",
                "an example in",
            ),
        ),
        ("docs/command-reference.md",),
        "`tests/cli`, `tests/docs/test_commands.py`, `make lint`",
    ),
    "a configuration key": Addition(
        (
            Edit(
                "streaming_app/config/settings.py",
                "    trigger: Duration = defaults.TRIGGER_SECONDS\n",
                "    trigger: Duration = defaults.TRIGGER_SECONDS\n    trial: Duration = 5.0\n",
                "a field of its section:",
                "streaming_app/config/*.py",
            ),
            Edit(
                "deploy/streams-groups.example.yaml",
                "\ntrigger: 0.5\n",
                "\ntrigger: 0.5\n# A trial.\ntrial: 5\n",
                "its default in",
            ),
            Edit(
                "tests/config/test_load.py",
                "    assert len(set(paths_of(Settings))) <= 80\n",
                "    assert len(set(paths_of(Settings))) <= 81\n",
                "the most that there may be, or another key goes:",
            ),
        ),
        (),
        "`tests/config/test_example.py`, `tests/config/test_load.py`",
    ),
}


def page() -> str:
    """Return the text of CONTRIBUTING.md, with the table between its markers made again."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    begin, end = _MARKERS
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{table()}\n\n{end}{after}"


def table() -> str:
    head = "| I want to add | touch these files | `make generate` then writes | run these tests |"
    rows = (
        f"| {thing} | {_files(one.edits)} | {', '.join(f'`{file}`' for file in one.generated) or '-'} | {one.tests} |"
        for thing, one in ADDITIONS.items()
    )
    return "\n".join((head, "| --- | --- | --- | --- |", *rows))


def _files(edits: Sequence[Edit]) -> str:
    return "; ".join(dict.fromkeys(f"{edit.what} `{_place(edit)}`" for edit in edits))


def _place(edit: Edit) -> str:
    created = Path(edit.file)
    return edit.place or (edit.file if edit.before else f"{created.parent}/*{created.suffix}")


def copy_project(directory: Path) -> Path:
    """Copy the project into an empty directory, without what tools generate; return the directory."""
    for name in COPIED:
        shutil.copytree(ROOT / name, directory / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file() and file.name != ".git":
            shutil.copy(file, directory / file.name)
    return directory


@contextmanager
def edited(copy: Path, edits: Sequence[Edit]) -> Iterator[dict[str, bytes]]:
    """Edit a copy of the project, which is as it was after the block. Give what its files held before."""
    before = contents(copy)
    try:
        for edit in edits:
            text = (copy / edit.file).read_text("utf-8") if edit.before else ""
            assert text.count(edit.before) == 1, f"{edit.file} does not hold {edit.before!r} once"
            (copy / edit.file).write_text(text.replace(edit.before, edit.after), "utf-8")
        yield before
    finally:
        for name in changes(before, contents(copy)):
            (copy / name).unlink(missing_ok=True)
            if name in before:
                (copy / name).write_bytes(before[name])


def run_edited(copy: Path, edits: Sequence[Edit], *module: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run a Python module in an edited copy, with its arguments; return how it ended, and which files were changed."""
    with edited(copy, edits) as before:
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        command = [sys.executable, "-m", *module]
        ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
        return ran, changes(before, contents(copy))


def contents(copy: Path) -> dict[str, bytes]:
    places = [copy / "CONTRIBUTING.md", *(file for name in COPIED for file in (copy / name).rglob("*"))]
    files = (file for file in places if file.is_file() and "__pycache__" not in file.parts)
    return {str(file.relative_to(copy)): file.read_bytes() for file in files}


def changes(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def main(thing: str) -> int:
    """Run the program of an addition, `make generate` and its tests in the current directory; return an exit code."""
    import pytest  # noqa: PLC0415

    sys.argv[1:] = []
    exec(ADDITIONS[thing].program, {})  # noqa: S102 - it is above
    for module in ("deploy.generate", "docs.generate"):
        run_module(module, run_name="__main__")
    tests = re.findall(r"`(tests/\S+\.py)`", ADDITIONS[thing].tests)
    without = "not (broker or spark or java or browser or slow)"
    code = pytest.main(["-q", "-x", "-m", without, "-p", "no:cacheprovider", "-p", "no:xdist", *tests]) if tests else 0
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
