"""The condition about groups that wait for an open transaction: it has lasted for longer than a transaction may.

Theory of operation
-------------------
A group that has read everything before an open transaction is *held* (`lag.measure`). That is no alert: when the
transaction ends, the group reads on. Its coordinator aborts a transaction after its time-out. So the group is Stalled
if the transaction has been open for its time-out, or if that is not known for the longest time-out that the brokers
allow (`transaction.max.timeout.ms`), and then for the patience of the group. If neither is known, Kafka's default
counts, and the verdict is a warning only.

The time of a transaction is that of the first record behind the last stable offset, by the job's clock: the clock of
its coordinator may differ by minutes. The transaction is the one that starts at the last stable offset, according to
the leader of the partition. If that is not known, it is the oldest one that may be described, unless this one began
later by the clock of its coordinator, or has not begun yet.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from streaming_app.health.facts import WORK_OLD, Facts, to_time
from streaming_app.health.verdict import CRITICAL, OPEN_TRANSACTION, STALLED, WARNING, Verdict
from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.open_transactions import NO_TRANSACTIONS, OpenTransaction
from streaming_app.text import count, first_of, format_duration, utc

_USUALLY_LONGEST = 900.0  # seconds: the default of `transaction.max.timeout.ms`
_TOLERANCE = 60.0  # seconds: between two clocks, and between two passes that saw the record
_NAMED, _IN_TEXT = 20, 3


class _Held(NamedTuple):
    since: float
    key: TopicPartition
    due: float
    """When the transaction is too old."""
    of: OpenTransaction | None
    limit: float | None
    """None: neither the time-out of the transaction nor the longest one is known."""
    producer_id: int | None


def held(facts: Facts) -> Verdict | None:
    """An open transaction has held the group at the last stable offset for longer than a transaction may be open."""
    work, known = facts.work, facts.transactions
    if known is None or not work.held or not facts.runs or facts.now - to_time(work.known_at) > WORK_OLD:
        return None
    every = [_held(key, since, facts) for key, since in work.held.items()]
    first_due = min(one.due for one in every)
    found = sorted(one for one in every if one.due <= max(first_due, facts.now.timestamp()))
    since = to_time(found[0].since)
    moves = work.progressed_at is not None and work.known_at - work.progressed_at < work.patience
    is_known = any(one.limit is not None for one in found)
    limit = "" if is_known else ", and how long one may be open is not known (DescribeConfigs on the cluster)"
    why = (
        f"{count(len(found), 'partition')} held by an open transaction since {utc(since)}{limit}: "
        f"{first_of([_place(one, facts) for one in found[:_IN_TEXT]], _IN_TEXT, len(found), separator='; ')}"
    )
    evidence = {
        OPEN_TRANSACTION: sorted({one.of.transactional_id for one in found if one.of})[:_NAMED],
        "partition_count": len(found),
        "partitions": [_row(one, facts) for one in found[:_NAMED]],
    }
    due = to_time(first_due) + timedelta(seconds=work.patience)
    return Verdict(STALLED, since, due, why, CRITICAL if is_known and not moves else WARNING, evidence)


def _held(key: TopicPartition, since: float, facts: Facts) -> _Held:
    known = facts.transactions or NO_TRANSACTIONS
    of, first = known.open.get(key), known.first.get(key)
    if first is not None and first.starts_at == facts.work.progress[key].row.last_stable_offset:
        of = first.of
    else:
        first, of = None, None if of is None or of.began > since + _TOLERANCE else of
    limit = of.timeout if of else known.longest
    producer_id = first.producer_id if first else of and of.producer_id
    return _Held(since, key, since + (_USUALLY_LONGEST if limit is None else limit), of, limit, producer_id)


def _place(one: _Held, facts: Facts) -> str:
    row, of = facts.work.progress[one.key].row, one.of
    text = f"{row.topic}-{row.partition} at {row.last_stable_offset}"
    if of is None:
        return text if one.producer_id is None else f"{text}, producer {one.producer_id}, transactional id not known"
    return (
        f"{text}, transactional id {of.transactional_id}, producer {of.producer_id}, open since "
        f"{utc(to_time(of.began))}, time-out {format_duration(of.timeout)}"
    )


def _row(one: _Held, facts: Facts) -> Mapping[str, Any]:
    row = facts.work.progress[one.key].row
    found = {name: getattr(row, name) for name in ("topic", "partition", "committed_offset", "last_stable_offset")}
    if one.producer_id is None:
        return found
    return found | {"transactional_id": one.of and one.of.transactional_id, "producer_id": one.producer_id}
