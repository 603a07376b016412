"""How a group went from one protocol of Kafka Streams to the other: an offline migration, told from the log.

The broker converts a group only while it has no members (`GroupMetadataManager`, Kafka 4.2 to 4.4), and keeps its
committed offsets and nothing else. So a migration has always the same steps. Each is told from `group_events`, and the
offsets from the newest commits and the samples of the lag before. What the tables do not have is "not known".
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby

from streaming_app.groups.events import JOINED, LEFT, PROTOCOL_CHANGED
from streaming_app.groups.group import ACTIVE, STREAMS
from streaming_app.groups.state_rules import EMPTY
from streaming_app.queries.behind import lag_at
from streaming_app.queries.history import Event, parse_tasks, read_events
from streaming_app.tables.reader import Row, WarehouseReader, of_group
from streaming_app.text import EPOCH, count, first_of

_NAMED = 5  # tasks or partitions in a text
_NOT_KNOWN = "not known"
_WITHOUT_LEAVING = "; members with the classic protocol stop without leaving, and time out after session.timeout.ms"
_Step = tuple[str, datetime | None, str]
"""Name of the step, its time if that is known, and what happened."""


def read_changes(reader: WarehouseReader, cluster: str, group_id: str) -> list[Row]:
    """Return the steps of each change of a group's protocol, the oldest first: `protocol`, `step`, `at` and `what`.

    `at` is None if it is not known, or nothing has happened yet. Raises WarehouseError.
    """
    own = of_group(cluster, group_id)
    if not reader.rows(f"SELECT at FROM group_events WHERE {own} AND kind = '{PROTOCOL_CHANGED}' LIMIT 1"):  # noqa: S608 - quoted
        return []
    events = [{**one, "at": one["at"] or EPOCH} for one in read_events(reader, cluster, group_id)]
    changes = [one for one in events if one["kind"] == PROTOCOL_CHANGED]
    commits = reader.rows(f"SELECT topic, partition, committed_offset, committed_at FROM offsets WHERE {own}")  # noqa: S608 - quoted
    found = []
    for number, change in enumerate(changes):
        before = [one for one in events if one["at"] < change["at"]]
        ends = changes[number + 1]["at"] if number + 1 < len(changes) else None
        since = [one for one in events if one["at"] >= change["at"] and (ends is None or one["at"] < ends)]
        sampled = lag_at(reader, cluster, group_id, change["at"])
        steps = (*_members(change, before, since), _tasks(before, since), _offsets(change["at"], commits, sampled))
        name = f"{change['old']} -> {change['new']}"
        found += [{"protocol": name, "step": step, "at": at, "what": what} for step, at, what in steps]
    return found


def _members(change: Event, before: Sequence[Event], since: Sequence[Event]) -> Iterator[_Step]:
    last_join = max((one["at"] for one in before if one["kind"] == JOINED), default=EPOCH)
    left = [one["at"] for one in before if one["kind"] == LEFT and one["at"] >= last_join]
    text = f"{count(len(left), 'member')} left or timed out" if left else _NOT_KNOWN
    yield "stopped", min(left, default=None), text + ("" if change["old"] == STREAMS else _WITHOUT_LEAVING)
    empty = [one["at"] for one in before if one["kind"] == "state" and one["new"] == EMPTY]
    yield "Empty", max(empty, default=None), "no members; the offsets stay" if empty else _NOT_KNOWN
    yield "converted", change["at"], f"the brokers made it a group with the {change['new']} protocol"
    joined = [one["at"] for one in since if one["kind"] == JOINED]
    yield "joined", min(joined, default=None), f"{count(len(joined), 'member')} since then"


def _tasks(before: Iterable[Event], since: Iterable[Event]) -> _Step:
    """Compare the active tasks before, by subtopology and partition, with the first complete assignment since."""
    had = next((tasks for _, tasks in reversed([*_active(before)])), frozenset[str]())
    found = [*_active(since)]
    if not had or not found:
        return "tasks", None, "nobody has a task yet" if had else _NOT_KNOWN
    at, have = next((one for one in found if one[1] == had), found[-1])
    differ = {"nobody has": had - have, "before, nobody had": have - had}
    parts = [f"{name} {first_of(sorted(some), _NAMED)}" for name, some in differ.items() if some]
    return "tasks", at, "; ".join(parts) or f"the same as before: {count(len(have), 'active task')}"


def _active(events: Iterable[Event]) -> Iterator[tuple[datetime, frozenset[str]]]:
    """Yield the time of each operation that gave a member tasks, and the active tasks that members had after it."""
    held: dict[str, set[str]] = {}
    for at, operation in groupby(events, key=lambda one: one["at"]):
        changed = [one for one in operation if one["kind"] in {LEFT, "assignment"}]
        for event in changed:  # of a member that left, `new` is null
            tasks = parse_tasks(event["new"])
            held[event["member_id"]] = {f"{part}_{number}" for role, part, number in tasks if role == ACTIVE}
        if any(one["new"] for one in changed):
            yield at, frozenset().union(*held.values())


def _offsets(changed_at: datetime, commits: Sequence[Row], sampled: Iterable[Row]) -> _Step:
    was = {(one["topic"], one["partition"]): one["committed_offset"] for one in sampled}
    since = [one for one in commits if one["committed_at"] and one["committed_at"] >= changed_at]
    at = max((one["committed_at"] for one in since), default=None)
    pairs = [(one, was.get((one["topic"], one["partition"]))) for one in since]
    lower = [
        f"{one['topic']}-{one['partition']} {old:,} -> {one['committed_offset']:,}"
        for one, old in pairs
        if old is not None and one["committed_offset"] < old
    ]
    if lower or not commits:
        return "offsets", at, f"lower than before: {first_of(lower, _NAMED)}" if lower else _NOT_KNOWN
    known = sum(old is not None for _, old in pairs)
    text = f"{len(since):,} of {count(len(commits), 'partition')} committed since"
    return "offsets", at, f"{text}, none of {known:,} that are known from before lower than then" if known else text
