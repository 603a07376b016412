"""Relation T: what groups read is written in transactions, and open ones hold back the last stable offset.

Each record is followed by markers, or by records of transactions that were aborted, and each group that reads committed
records stops at the last stable offset while it stands. So the same happens in both worlds, but for these times.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from streaming_app.lag.ends import NO_ENDS, LogEnds, Tail
from streaming_app.lag.model import Commit
from tests.histories.clients import START
from tests.histories.history import History
from tests.histories.judged import OUTCOMES
from tests.histories.outcome import seconds
from tests.histories.traffic import PASS, Seen, TopicPartition
from tests.histories.world import World
from tests.relations.engine import differences, play, random_of, told


@dataclass(frozen=True)
class Transactions:
    """How records are written, and when the last stable offset stands still."""

    gap: int = 2
    """Offsets for each record: itself, then markers and aborted records."""
    is_past: bool = False
    """A commit is behind the markers, and not before them."""
    holds: tuple[tuple[float, float], ...] = ()
    """From when to when a transaction is open on each partition."""
    reads_uncommitted: bool = False

    def __call__(self, world: World) -> World:
        """Return the world with these transactions."""
        return replace(world, lag=list(_Written(self).seen(world)))


@dataclass
class _Written:
    how: Transactions
    stable: dict[tuple[float, TopicPartition], int] = field(default_factory=dict)
    """When a transaction began, and where -> the last stable offset while it is open."""
    stood: dict[tuple[str, TopicPartition], Commit] = field(default_factory=dict)
    """The commits of groups as they are in this world."""

    def seen(self, world: World) -> Iterator[Seen]:
        for one in world.lag:
            hold = next((hold for hold in self.how.holds if hold[0] <= one.at < hold[1]), None)
            ends = {key: self._ends(key, end, hold) for key, end in one.ends.items()}
            commits = {
                key: self._commit((one.group_id, key), commit, ends[key], one) for key, commit in one.commits.items()
            }
            yield one._replace(commits=commits, ends=ends)

    def _ends(self, key: TopicPartition, ends: LogEnds, hold: tuple[float, float] | None) -> LogEnds:
        if ends == NO_ENDS or ends.end is None or ends.tail is not None:
            return ends if ends == NO_ENDS else self._scaled(ends, None)
        found = self._scaled(ends, None)
        stable = found.stable or 0
        if hold:
            stable = self.stable.setdefault((hold[0], key), stable)
        stable = max(min(stable, found.end or 0), found.start or 0)
        last = (stable - 1) // self.how.gap * self.how.gap  # of a record
        return found._replace(stable=stable, tail=Tail(stable, last if stable else -1, last + 1, stable))

    def _scaled(self, ends: LogEnds, tail: Tail | None) -> LogEnds:
        gap, old = self.how.gap, ends.tail
        if old is not None:
            tail = old._replace(end=old.end * gap, empty_from=old.empty_from * gap, empty_to=old.empty_to * gap)
            tail = tail._replace(record_at=old.record_at * gap if old.record_at > 0 else old.record_at)
        values = {
            name: None if (at := getattr(ends, name)) is None else at * gap for name in ("end", "start", "stable")
        }
        return ends._replace(**values, tail=tail)

    def _commit(self, key: tuple[str, TopicPartition], commit: Commit, ends: LogEnds, seen: Seen) -> Commit:
        gap = self.how.gap
        if commit.offset is None:
            self.stood.pop(key, None)
            return commit
        offset = commit.offset * gap - (0 if self.how.is_past or not commit.offset else gap - 1)
        known, at = self.stood.get(key), commit.committed_at or 0.0
        if ends.stable is not None and ends.stable < min(offset, ends.end or 0) and not self.how.reads_uncommitted:
            if known and known.offset == ends.stable:
                return known  # it goes on when the transaction ends
            offset = ends.stable
        ended = [end + START.timestamp() for _, end in self.how.holds if end <= seen.at]
        if (
            known
            and known.offset != offset
            and ended
            and at < ended[-1] <= seen.at + START.timestamp() < ended[-1] + PASS
        ):
            at = max(at, ended[-1])
        self.stood[key] = commit._replace(offset=offset, committed_at=at)
        return self.stood[key]


SHORT, LONG = 600.0, 2_400.0
"""Seconds for which a transaction is open: less, and more than the longest time-out and the patience of the group."""
_LIMIT = 900.0 + 300.0
_DELAY = 420.0
"""Seconds to the alert of what has begun while a transaction was open, once it has ended."""
_EXCUSED = ("StreamsGroupStalled", "StreamsGroupBehind", "StreamsGroupLosing")


LEFT_OUT = {
    "The garbage collector lets one of three instances stand still for seven of every ten minutes (classic protocol)": (
        "It stalls again and again. Which of its stalls is the first one that is told depends on the transaction."
    )
}
"""History -> why nothing can be said of the times of its alerts, with the transactions that the seed chooses."""


def writes_plain_records(history: History) -> bool:
    """Return whether no transactions are part of a history: only then each offset is a record."""
    return history.name not in LEFT_OUT and not any(
        one.action == "end_transaction" or one.arguments.get("transactional") for one in history.operations
    )


def transactions_of(history: History) -> Transactions:
    """Return transactions for a history, the same ones each time."""
    random = random_of("T", history.name)
    length = random.choice((0.0, SHORT, LONG))
    began = random.uniform(history.watched_from + SHORT, max(history.watched_from + SHORT, history.seconds - LONG))
    return Transactions(
        random.choice((2, 5)),
        is_past=random.random() < 0.5,
        holds=((began, began + length),) if length else (),
        reads_uncommitted=random.random() < 0.2,
    )


def check_transactions(history: History) -> None:
    """Assert that transactions bring no alert but those of one that is open for too long, and take none away."""
    how = transactions_of(history)
    if how.reads_uncommitted:
        how = replace(how, is_past=True)  # what lies behind a commit there cannot be read while a transaction is open
    outcome = play(history, transform=how)
    found = differences(told(OUTCOMES.of(history)), told(outcome))
    began, ended = how.holds[0] if how.holds else (0.0, 0.0)
    held = [(one.group_id, seconds(one.opened_at)) for one in outcome.alerts if one.cause and one.opened_at]
    held = [one for one in held if began + _LIMIT <= one[1] <= ended]
    if how.reads_uncommitted or ended - began < _LIMIT:
        assert held == [], how
    assert [one for one in found.false if (one.group_id, one.opened_at) not in held] == [], how
    assert [one for one in found.missed if not (one.rule in _EXCUSED and began <= one.opened_at <= ended)] == [], how
    late = [
        (one, other)
        for one, other in found.changed(("opened_at", "since"), 2 * PASS)
        if not (began <= other.opened_at <= ended + _DELAY or began <= one.opened_at <= ended)
        # Who is slow seems to catch up with a last stable offset that stands still.
        and not (
            began <= other.since <= ended + _DELAY
            and other.opened_at - other.since <= one.opened_at - one.since + 2 * PASS
        )
    ]
    assert late == [], how
