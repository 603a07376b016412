"""Where a job starts, decided without a job: tables and checkpoint as an earlier one left them, and what fits them.

Tables are written by delta-rs, and the checkpoint as Spark writes it. `test_start` tries some of it with whole jobs.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from streaming_app.errors import OtherOwnerError, OtherTopicError, StreamChangedError
from streaming_app.groups.marked_rows import marked
from streaming_app.groups.partition import partition_of
from streaming_app.kafka.offsets_topic import OffsetsTopic
from streaming_app.stream import start
from streaming_app.stream.log_positions import LogCheck
from streaming_app.stream.source import EARLIEST
from streaming_app.stream.start import ANSWERS, Found, finish_reading, group_tables
from streaming_app.stream.table_versions import TableVersions
from streaming_app.tables.fence import Fence
from streaming_app.tables.group_files import group_files
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable
from tests.stream.stopped_job import (
    CUT,
    HOUR,
    TOPIC,
    Commits,
    Stopped,
    empty,
    forget_last_batch,
    lose,
    remove,
    replace_tables,
)
from tests.support.rows import group_row
from tests.support.warehouses import copy_warehouse, create_tables, make_warehouse

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each test gets a copy of."""
    directory = tmp_path_factory.mktemp("stopped")
    Stopped(make_warehouse(directory / "warehouse")).write_batches()
    create_tables(directory / "created")
    return directory


@pytest.fixture
def stopped(written: Path, tmp_path: Path) -> Stopped:
    return Stopped(copy_warehouse(written, tmp_path / "stopped") / "warehouse")


RESUMED = "resuming from the checkpoint"
BEGUN = "reading from the beginning"
AGAIN = "reading from the beginning again; the history stays"
STAYS = "; reading from the beginning; the history stays"
NONE: dict[str, dict[int, int]] = {"group_events": {}, "quarantine": {}, "topologies": {}}
ALL = {**NONE, "group_events": {0: 28}, "quarantine": {0: 29}}
"""How far the history reaches after three batches."""
EARLIER = {**NONE, "group_events": {0: 18}, "quarantine": {0: 19}}
"""And after two."""


class Case(NamedTuple):
    """What happened to a warehouse, how its job starts then, what it says, and how far the history reaches for it."""

    change: Callable[[Stopped], None] | None
    message: str
    history: dict[str, dict[int, int]] = ALL
    start: Mapping[str, Any] = MappingProxyType({})
    stands: Sequence[int] = (4,)
    """The epochs of rows that no longer count, and are shown until their groups are read again."""


def damage(copies: Sequence[Path]) -> None:
    """As a power cut leaves a file, or another program."""
    for one, text in zip(copies, ("", '{"format": 1, "number": 90, "crc32": 7, "state": {}}'), strict=False):
        one.write_text(text, "utf-8")


def restore_state(stopped: Stopped) -> None:
    """Let the state be one that was copied before the last batch."""
    for name in (f"{stopped.checkpoint.name}.state{number}.json" for number in (0, 1)):
        shutil.copy(stopped.older / "_checkpoints" / name, stopped.directory / "_checkpoints" / name)


RESUMING = {
    "nothing changed": Case(None, RESUMED),
    "no batch was finished": Case(lambda one: remove(one, "/commits"), BEGUN),
    "away for a day less an hour": Case(None, RESUMED, start={"away": 23 * HOUR}),
    "the newer copy of the state is damaged": Case(lambda one: damage(one.copies()[:1]), RESUMED),
    "the newer copy of the state is lost": Case(lambda one: one.copies()[0].unlink(), RESUMED),
    "the older copy of the state is damaged": Case(lambda one: damage(one.copies()[1:]), RESUMED),
    "the state is older than the tables": Case(restore_state, RESUMED),
}
AGAIN_FROM_THE_BEGINNING = {
    "--reset is given": Case(None, AGAIN, start={"reset": True}, stands=()),
    "the state is missing, or both copies are damaged: lost": Case(
        lambda one: remove(one, ".state0.json", ".state1.json"), AGAIN
    ),
    "the state is missing, or both copies are damaged: damaged": Case(lambda one: damage(one.copies()), AGAIN),
    "the state is that of a start which was killed": Case(lambda one: one.state().write(rows=""), AGAIN),
    "the state is of rows that were lost": Case(lambda one: lose(one, "groups"), AGAIN, stands=()),
    "there is no checkpoint, or only a part: none": Case(lambda one: remove(one, ""), AGAIN),
    "there is no checkpoint, or only a part: deleted while it was written": Case(
        lambda one: remove(one, "/metadata"), AGAIN
    ),
    "the state is newer than the tables: history lost": Case(
        lambda one: lose(one, "group_events"),
        f"lost or restored since: group_events{STAYS}",
        {**ALL, "group_events": {}},
    ),
    "the state is newer than the tables: a copy of which the checkpoint was made last": Case(
        lambda one: replace_tables(one, one.older, ["groups", "group_events", "quarantine"]),
        f"lost or restored since: groups, group_events, quarantine{STAYS}",
        EARLIER,
        stands=(3,),
    ),
    "the checkpoint is older than the tables: a copy of which it was made first": Case(
        forget_last_batch, f"the checkpoint is older than group_events, quarantine{STAYS}"
    ),
    "the checkpoint is damaged: a power cut": Case(
        lambda one: empty(one, "offsets"), f"the checkpoint is damaged, offsets/2 cannot be read{STAYS}"
    ),
    "the checkpoint is damaged: a batch that was finished and not begun": Case(
        lambda one: remove(one, "/offsets/2"), f"the checkpoint is damaged, offsets/2 is missing{STAYS}"
    ),
    "the topic has more partitions": Case(
        None,
        "the topic now has 3 partitions, reading from the beginning; the history stays",
        start={"topic": TOPIC._replace(end_offsets={0: 40, 1: 0, 2: 0})},
    ),
    "tombstones may be gone: away for a day and an hour": Case(
        None,
        "last at the end of the topic 25 h ago, and tombstones are removed after 24 h: reading from the beginning; "
        "the history stays",
        start={"away": 25 * HOUR},
    ),
    "tombstones may be gone: away for an unknown time": Case(
        None,
        "not known when the job was last at the end of the topic: reading from the beginning; the history stays",
        start={"away": None},
    ),
}


@pytest.mark.parametrize("case", RESUMING.values(), ids=RESUMING)
def test_a_job_goes_on_from_its_checkpoint(stopped: Stopped, case: Case) -> None:
    if case.change:
        case.change(stopped)
    position = stopped.start(**case.start)
    assert (position.message, position.from_beginning) == (case.message, False)
    assert (position.state.history, position.state.starting) == (NONE, {})
    assert stopped.epochs() == [4]
    assert (stopped.checkpoint / "offsets" / "2").path.exists()


def test_each_answer_to_what_a_start_finds_is_tried() -> None:
    tried = {name.partition(":")[0] for name in AGAIN_FROM_THE_BEGINNING}
    assert ANSWERS.keys() - tried == {"the state is of another topic, with --reset"}  # see below


@pytest.mark.parametrize("name", AGAIN_FROM_THE_BEGINNING)
def test_a_job_reads_again_and_leaves_out_what_its_history_has(
    stopped: Stopped, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    case, found = AGAIN_FROM_THE_BEGINNING[name], list[str]()
    if case.change:
        case.change(stopped)

    def noted(cause: str, given: Found) -> str | None:
        if (reason := ANSWERS[cause](given)) is not None:
            found.append(cause)
        return reason

    with monkeypatch.context() as patched:
        patched.setattr(start, "ANSWERS", {cause: partial(noted, cause) for cause in ANSWERS})
        position = stopped.start(**case.start)
    assert found == [name.partition(":")[0]]
    assert (position.message, position.from_beginning) == (case.message, True)
    assert (position.state.history, position.state.until, position.read_again) == (
        case.history,
        {0: 40} if case.stands else {},
        set(range(case.start.get("topic", TOPIC).partitions)),
    )
    assert stopped.epochs() == []
    assert stopped.epochs("true") == [*case.stands]
    assert not stopped.checkpoint.path.exists()
    assert position.state.partitions_grew == ("topic" in case.start)

    topic = {name: value for name, value in case.start.items() if name == "topic"}
    again = stopped.start(**topic)  # it was killed before its first batch
    assert (again.from_beginning, again.state.history) == (True, case.history)
    stopped.begin_batch(0)  # and now within it
    after_that = stopped.start(**topic)
    assert (after_that.message, after_that.state.history) == (BEGUN, case.history)
    assert after_that.state.partitions_grew == position.state.partitions_grew
    stopped.write_batch(5)
    assert stopped.start(**topic).message == RESUMED


OTHERS = {
    "created again": (
        TOPIC._replace(topic_id="second-id"),
        r"Topic offsets was deleted and created again since the job last ran\. .* --reset .*; the history stays",
    ),
    "of another name": (TOPIC._replace(name="others"), "This is topic others, and the tables are of topic offsets"),
    "of another cluster": (
        TOPIC._replace(cluster_id="elsewhere"),
        "This is Kafka cluster elsewhere, and the tables are of cluster kafka",
    ),
}


@pytest.mark.parametrize(("topic", "message"), OTHERS.values(), ids=OTHERS)
def test_another_topic_is_refused_until_a_reset_and_its_offsets_leave_nothing_out(
    stopped: Stopped, topic: OffsetsTopic, message: str
) -> None:
    before = stopped.known()
    for case in (None, lambda: remove(stopped, "")):
        if case:
            case()
        with pytest.raises(OtherTopicError, match=message):
            stopped.start(topic)
        assert (stopped.known(), stopped.epochs()) == (before, [4])

    position = stopped.start(topic, reset=True)
    assert position.message == "another topic than before, reading from the beginning"
    assert (position.from_beginning, position.state.history, stopped.epochs()) == (True, {}, [])
    assert stopped.start(topic).state.history == NONE  # it ended before it read anything
    stopped.append_event(3)
    assert stopped.start(topic).state.history == {**NONE, "group_events": {0: 3}}


def test_what_is_beyond_the_end_of_the_topic_is_of_another_one(stopped: Stopped) -> None:
    remove(stopped, "", ".state0.json", ".state1.json")
    position = stopped.start(TOPIC._replace(end_offsets={0: 29}))
    assert position.state.history == {**NONE, "group_events": {0: 28}}


KILLED: dict[str, tuple[type, str, str]] = {
    "before it changes anything": (RustTable, "select", RESUMED),
    "before it drops the rows": (RustTable, "delete", AGAIN),
    "before it knows the tables": (TableVersions, "write", AGAIN),
}


@pytest.mark.parametrize(("owner", "step", "message"), KILLED.values(), ids=KILLED)
def test_a_job_that_is_killed_while_it_prepares_its_start_starts_over(
    stopped: Stopped, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, message: str
) -> None:
    def killed(*_: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, killed)
        with pytest.raises(KeyboardInterrupt):
            stopped.start(reset=True)
    position = stopped.start()
    assert position.message == message
    assert stopped.epochs() == ([4] if message == RESUMED else [])
    assert position.state.history == (NONE if message == RESUMED else ALL)


def test_of_a_log_that_was_cut_the_partition_is_read_again(stopped: Stopped) -> None:
    position = stopped.start(log=LogCheck((CUT,), committed={0: 30}))
    lost = "the log no longer has partition 0 of offsets, offsets 15 to 29"
    assert position.message == f"{lost}: reading this partition again; the history stays, its lost part marked as void"
    assert (position.from_beginning, position.read_again, position.state.starting) == (False, {0}, {0: EARLIEST})
    assert position.state.history == {**NONE, "group_events": {0: 8}, "quarantine": {0: 9}}
    assert stopped.epochs("true") == []
    events = WarehouseReader(stopped.directory).rows("SELECT kind, void FROM group_events")
    assert sorted((row["kind"], bool(row["void"])) for row in events) == [
        ("log_truncated", False),
        ("state", False),
        ("state", True),
        ("state", True),
    ]


def test_before_a_batch_that_ends_beyond_the_log_the_job_goes_on_from_the_one_before(stopped: Stopped) -> None:
    position = stopped.start(log=LogCheck(ends_early=True, committed={0: 20}))
    assert position.message == "the last batch was started but ends beyond the log, resuming before it"
    assert (position.from_beginning, position.read_again, position.state.starting) == (False, frozenset(), {0: 20})
    assert (position.state.history, stopped.epochs()) == ({**ALL, "topologies": {0: 19}}, [4])


def test_history_reaches_as_far_as_batches_were_committed_whatever_the_newest_event_is(stopped: Stopped) -> None:
    topic = TOPIC._replace(end_offsets={0: 50})
    position = stopped.start(topic, groups=["ghost"], log=LogCheck(committed={0: 45}))
    assert position.state.history == {name: {0: 44} for name in ALL}


def test_rows_are_marked_some_files_at_a_time(stopped: Stopped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_MARKED_BYTES", 0)
    groups = stopped.writer.table("groups")
    for name in ("b", "c"):
        groups.append(groups.to_table([group_row(f"{name}{number}", last_offset=3) for number in range(2)]))
    before = groups.open().version()
    assert stopped.start(away=None).state.until == {0: 40}
    assert set(groups.select("last_offset").column(0).to_pylist()) == {marked(3), marked(28)}
    table = groups.open()
    assert table.version() == before + 3
    assert len(group_files(table, "default")) == 3


def test_marked_rows_go_though_the_log_was_cut_below_where_they_were_to_be_replaced(stopped: Stopped) -> None:
    assert stopped.start(away=None).state.until == {0: 40}
    stopped.begin_batch(0)
    assert stopped.start(TOPIC._replace(end_offsets={0: 35})).state.until == {0: 35}


def test_of_a_log_that_was_cut_rows_that_are_read_again_go_too_as_they_may_be_of_lost_records(stopped: Stopped) -> None:
    assert stopped.start(away=None).state.until == {0: 40}
    assert stopped.epochs("true")
    stopped.begin_batch(0)
    stopped.start(log=LogCheck((CUT,), committed={0: 30}))
    assert stopped.epochs("true") == []


def test_groups_are_read_again_alone_and_stand_until_then_also_if_the_job_ends_before_it_drops_what_is_left(
    stopped: Stopped,
) -> None:
    groups = stopped.writer.table("groups")
    groups.append(
        groups.to_table([group_row("other", group_epoch=7, last_offset=3), group_row("ghost", last_offset=5)])
    )
    topic = TOPIC._replace(end_offsets={0: 30, 1: 9})
    stopped.state().write(partitions=2)
    position = stopped.start(topic, groups=["ghost"], log=LogCheck(committed={0: 30, 1: 4}))
    place = partition_of("ghost", 2)
    assert position.message == "reading the records of 1 group again (ghost); the history stays"
    assert (position.read_again, position.state.starting[place], position.state.starting[1 - place]) == (
        {place},
        EARLIEST,
        30,
    )
    assert sorted(stopped.epochs()) == [4, 7]
    assert len(stopped.epochs("true")) == 3
    ends = {0: 30, 1: 9}
    tables = group_tables(stopped.writer, stopped.checkpoint, stopped.state())
    assert not finish_reading(tables, stopped.state(), {**ends, place: 2})
    assert position.state.until == {place: ends[place]}
    stopped.begin_batch(0)
    assert stopped.start(topic).state.until == position.state.until  # it was killed before the batch was done
    assert finish_reading(tables, stopped.state(), ends)
    assert sorted(stopped.epochs("true")) == [4, 7]
    assert stopped.start(topic).state.until == {}


def test_rows_that_nothing_replaced_go_at_the_next_start_if_the_job_was_killed_before_it_deleted_them(
    stopped: Stopped,
) -> None:
    assert stopped.start(away=None).state.until == {0: 40}
    groups = stopped.writer.table("groups")
    groups.append(groups.to_table([group_row("other", group_epoch=7, last_offset=3)]))
    stopped.begin_batch(3)
    (stopped.checkpoint / "commits").path.mkdir(exist_ok=True)
    (stopped.checkpoint / "commits" / "3").path.write_text("v1\n{}\n", "utf-8")
    assert (stopped.start().message, stopped.epochs("true")) == (RESUMED, [7])


def test_of_a_partition_that_was_cut_the_commits_stand_until_they_are_appended_again_except_lost_ones(
    stopped: Stopped,
) -> None:
    commits = Commits(stopped)
    commits.append(kept=9, lost=20, replaced=8)
    position = commits.start(log=LogCheck((CUT,), committed={0: 30}))
    assert (position.read_again, position.state.until) == ({0}, {0: 40})
    assert commits.seen() == {"kept": 9, "replaced": 8}
    commits.append(replaced=12)
    assert commits.seen() == {"kept": 9, "replaced": 12}


@pytest.mark.parametrize("start", [{"away": None}, {"topic": TOPIC._replace(end_offsets={0: 40, 1: 0})}])
def test_commits_that_are_read_again_stand_until_they_are_appended_again_or_the_log_has_none(
    stopped: Stopped, start: dict[str, Any]
) -> None:
    commits = Commits(stopped)
    commits.append(one=9, gone=20)
    commits.append(one=12)
    commits.start(**start)
    assert commits.seen() == {"one": 12, "gone": 20}
    commits.append(one=9)  # the log still has it
    assert commits.seen() == {"one": 9, "gone": 20}
    commits.append(one=12)
    assert not finish_reading(commits.tables, commits.state, {0: 39})
    assert commits.seen() == {"one": 12, "gone": 20}
    assert finish_reading(commits.tables, commits.state, {0: 40})
    assert commits.seen() == {"one": 12}
    assert commits.state.read().state.until == {}


def test_rows_of_a_batch_that_was_killed_are_seen_once_after_a_cut_of_another_partition(stopped: Stopped) -> None:
    """Of the acts that wait, those of the partition that was cut are found again."""
    commits = Commits(stopped)
    commits.append(other=29)
    commits.append(one=31)  # and the job was killed
    cut = replace(CUT, partition=1)
    topic = TOPIC._replace(end_offsets={0: 40, 1: 20})
    acts = tuple({"source_partition": one, "offset": 5} for one in (0, 1))
    commits.state.write(partitions=2, acts=acts)
    commits.start(topic, log=LogCheck((cut,), committed={0: 30, 1: 10}))
    assert commits.state.read().state.acts == acts[:1]
    assert commits.seen() == {"one": 31, "other": 29}
    commits.append(one=31)
    assert commits.seen() == {"one": 31, "other": 29}


@pytest.mark.parametrize("again", [True, False], ids=["to read again", "to resume"])
def test_a_job_that_was_replaced_while_it_was_paused_leaves_checkpoint_and_record_to_the_other_one(
    stopped: Stopped, *, again: bool
) -> None:
    before = stopped.known()
    stopped.writer.fence = Fence("default", 1)
    stopped.writer.fence.is_lost = True
    with pytest.raises(OtherOwnerError):
        stopped.start(reset=again)
    assert stopped.known() == before
    assert (stopped.checkpoint / "commits" / "2").path.exists()


def test_a_deleted_table_is_named_and_one_that_was_created_again_and_those_that_are_there_are_not(
    stopped: Stopped,
) -> None:
    known = TableVersions(stopped.writer, stopped.checkpoint, stopped.state())
    known.remember()
    known.check()
    lose(stopped, "quarantine")
    with pytest.raises(StreamChangedError, match="The table quarantine was deleted while the job ran"):
        known.check()
    shutil.rmtree(stopped.directory / "groups")
    with pytest.raises(StreamChangedError, match="The table groups and quarantine was deleted while the job ran"):
        known.check()
