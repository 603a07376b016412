"""The poller of the table `broker_facts`: what explains a group's lag, and only the brokers know.

Each pass asks for the kinds of facts that are due. A kind that cannot be had now keeps what was known of it, with the
time at which it was, also across a restart: a broker that is away, or an ACL that was taken away, makes facts old, and
not wrong. Configs change rarely: they are asked for again after ten minutes, or when there are other groups or topics.

The table is replaced in one commit when a fact has changed, and every ten minutes for the times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.errors import KafkaError

from streaming_app.alerts.facts import TopicDifference
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import DEAD
from streaming_app.groups.topology import is_internal_topic
from streaming_app.job.service import PolledBy, Poller, Polling
from streaming_app.kafka import (
    ASKED_FOR,
    BROKER_CONFIG,
    COORDINATOR,
    FEATURE,
    GROUP_CONFIG,
    GROUP_STATE,
    INTERNAL_TOPIC,
    ISR,
    LEFT_OVER_TOPIC,
    RETENTION,
    TRANSACTION,
    WRITER,
    broker_facts,
)
from streaming_app.kafka.broker_facts import BrokerFact, InternalTopic, LeftOverTopic
from streaming_app.kafka.connection import Admin, connect
from streaming_app.kafka.protocol import GroupError
from streaming_app.lag.work import retention_seconds
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable

if TYPE_CHECKING:
    from streaming_app.tables.fence import Fence

NAME = "broker_facts"
_NEEDS = "broker facts need Describe on the groups, their topics and transactional ids"
GROUPS, TOPICS, INTERNAL, EARLIER, BROKERS = "groups", "topics", "internal topics", "earlier topics", "brokers"
_AT_EACH_PASS, _RARELY = timedelta(0), timedelta(minutes=10)
_MOST_WRITERS = 10_000  # facts: anybody who may write can name transactions as they like
_WRITTEN_EVERY = timedelta(minutes=10)
_INTERNAL_COLUMNS = ("repartition_source_topics", "state_changelog_topics")

Connect = Callable[[], AbstractContextManager[Admin]]


class _Kind(NamedTuple):
    """A kind of facts: how it is asked for, about groups, topics or all brokers, and how often."""

    name: str
    ask: Callable[[Admin, Sequence[Any]], list[BrokerFact]]
    subjects: str
    every: timedelta


_KINDS = (
    _Kind(GROUP_CONFIG, broker_facts.group_configs, GROUPS, _RARELY),
    _Kind(INTERNAL_TOPIC, broker_facts.internal_topics, INTERNAL, _RARELY),
    _Kind(LEFT_OVER_TOPIC, broker_facts.left_over_topics, EARLIER, _RARELY),
    _Kind(BROKER_CONFIG, broker_facts.broker_configs, BROKERS, _RARELY),
    _Kind(COORDINATOR, broker_facts.coordinators, GROUPS, _AT_EACH_PASS),
    _Kind(GROUP_STATE, broker_facts.group_states, BROKERS, _AT_EACH_PASS),
    _Kind(RETENTION, broker_facts.retention, TOPICS, _RARELY),
    _Kind(ISR, broker_facts.replication, TOPICS, _AT_EACH_PASS),
    _Kind(FEATURE, broker_facts.features, BROKERS, _AT_EACH_PASS),
    _Kind(TRANSACTION, broker_facts.overdue_transactions, TOPICS, _AT_EACH_PASS),
    _Kind(WRITER, broker_facts.writers, BROKERS, _AT_EACH_PASS),
)


@dataclass(frozen=True)
class _Known:
    """What is known of a kind."""

    facts: Sequence[BrokerFact]
    observed_at: datetime
    names: Sequence[Any] = ()
    """The groups or topics that were asked about."""

    @cached_property
    def differing(self) -> Sequence[BrokerFact]:
        """Those that say of something that it is not as a group asked for."""
        return [one for one in self.facts if one.group_id and ASKED_FOR in one.value]


class BrokerFacts(Poller):
    """Polls from `start` to `close`."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing it needs
        self,
        polling: Polling,
        connect: Connect,
        groups: Callable[[], Mapping[str, GroupSnapshot]],
        warehouse: Location,
        cluster: str,
        fence: Fence | None = None,
    ) -> None:
        """Prepare it for the groups of a cluster, whose rows it keeps."""
        super().__init__("broker facts", polling)
        self._connect, self._groups, self._warehouse = connect, groups, warehouse
        self._table = RustTable(warehouse / NAME, cluster, fence)
        self._known: dict[str, _Known] = {}
        self._written: Sequence[BrokerFact] = ()
        self._written_at: datetime | None = None

    def tick(self) -> None:
        """Make one pass. Raises the errors of tables, and an error of the brokers after every kind was tried."""
        known = self._restored()
        now, topologies = self._now(), self._topologies()
        internal = sorted({topic for row in topologies for topic in _internal_topics(row)})
        sources = {topic for row in topologies for topic in row["source_topics"] or ()}
        subjects: Mapping[str, Sequence[Any]] = {
            GROUPS: self._running(),
            TOPICS: sorted(sources.union(topic.name for topic in internal)),
            INTERNAL: internal,
            EARLIER: self._earlier(internal, now),
            BROKERS: [BROKERS],
        }
        due = [kind for kind in _KINDS if _is_due(kind, known.get(kind.name), subjects[kind.subjects], now)]
        with self._connect() as admin:
            errors = [error for kind in due if (error := self._ask(admin, kind, subjects[kind.subjects], now))]
        self._write(now)
        if errors:
            raise errors[0]

    def retention(self) -> Mapping[str, float]:
        """Return for how many seconds each topic keeps records, of those that delete them by their age."""
        known = self._known.get(RETENTION)
        return retention_seconds((one.subject, one.name, one.value) for one in known.facts) if known else {}

    def topic_differences(self) -> Sequence[TopicDifference] | None:
        """Return what of internal topics is not as the topology of their group asks for; None before it is known."""
        known, groups = self._known.get(INTERNAL_TOPIC), self._groups()
        if known is None:
            return None
        return [
            TopicDifference(one.group_id, one.subject, one.name, one.value, one.changed_at or known.observed_at)
            for one in known.differing
            if one.group_id and _exists(groups.get(one.group_id))
        ]

    def _ask(self, admin: Admin, kind: _Kind, names: Sequence[Any], now: datetime) -> Exception | None:
        """Ask for the facts of a kind; return the error if the brokers do not answer."""
        try:
            found = sorted(kind.ask(admin, names)) if names else []
        except (KafkaError, GroupError) as error:
            return error
        before = self._known.get(kind.name)
        facts = before.facts if before else ()
        if kind.name == WRITER:
            found = self._seen_writers(found, facts)
        self._known[kind.name] = _Known(list(_with_changes(found, facts, now)), now, names)
        return None

    def _seen_writers(self, found: Iterable[BrokerFact], before: Iterable[BrokerFact]) -> list[BrokerFact]:
        """Return what was ever seen of groups that exist: at a moment some have no transaction open."""
        groups = self._groups()
        kept = {(one.subject, one.name): one for one in (*before, *found) if _exists(groups.get(one.name))}
        return [kept[key] for key in sorted(kept)][:_MOST_WRITERS]

    def _running(self) -> list[str]:
        return sorted(
            group_id for group_id, group in self._groups().items() if _exists(group) and group.group_type == "streams"
        )

    def _topologies(self) -> list[dict[str, Any]]:
        """Return the topics that the streams groups read and keep their state in, by group."""
        return WarehouseReader(self._warehouse).rows(
            "SELECT group_id, source_topics, repartition_source_topics, state_changelog_topics FROM subtopologies "  # noqa: S608 - quoted
            f"WHERE {self._table.own_rows}"
        )

    def _earlier(self, internal: Sequence[InternalTopic], now: datetime) -> Sequence[LeftOverTopic]:
        """Return the internal topics of earlier topologies that none asks for now, looked up when they are due.

        Every group may name any topic: one that another group, of any type, may have made is not among them.
        """
        known = self._known.get(LEFT_OVER_TOPIC)
        if known and now - known.observed_at < _RARELY:
            return known.names
        running, reader = set(self._running()), WarehouseReader(self._warehouse)
        wanted = {topic.name for topic in internal if topic.group_id in running}
        own = self._table.own_rows
        others = reader.rows(f"SELECT group_id FROM all_groups WHERE {own} AND group_type <> 'streams'")  # noqa: S608 - quoted
        other_ids = {row["group_id"] for row in others}
        existing = running | other_ids
        found: dict[str, LeftOverTopic] = {}
        for row in reader.rows(f"SELECT group_id, subtopologies FROM topologies WHERE {own}"):  # noqa: S608 - quoted
            group_id = row["group_id"]
            if group_id in other_ids:
                continue
            left_by = "topology" if group_id in running else "group"
            for name in _earlier_names(row) - wanted:
                if not any(one != group_id and one in existing for one in _owners(name)):
                    found[name] = LeftOverTopic(name, group_id, left_by)
        return sorted(found.values())

    def _restored(self) -> dict[str, _Known]:
        """Return what is known, at first from the table."""
        if not self._known:
            self._known = self._read()
        return self._known

    def _read(self) -> dict[str, _Known]:
        names = ", ".join(f'"{name}"' for name in (*BrokerFact._fields, "observed_at"))
        rows = WarehouseReader(self._warehouse).rows(
            f"SELECT {names} FROM {NAME} WHERE {self._table.own_rows} ORDER BY kind, observed_at"  # noqa: S608 - our own names
        )
        known = {}
        for kind, those in groupby(rows, key=lambda row: str(row["kind"])):
            stored = list(those)
            facts = sorted(BrokerFact(**{name: row[name] for name in BrokerFact._fields}) for row in stored)
            known[kind] = _Known(facts, stored[0]["observed_at"])
        return known

    def _write(self, now: datetime) -> None:
        known = self._known
        facts = [fact for kind in sorted(known) for fact in known[kind].facts]
        is_old = self._written_at is None or now - self._written_at >= _WRITTEN_EVERY
        if self.stopping.is_set() or (facts == self._written and not is_old):
            return
        rows = ({**fact._asdict(), "observed_at": known[fact.kind].observed_at} for fact in facts)
        self._table.replace(self._table.to_table(rows))
        self._written, self._written_at = facts, now
        self._table.maintain()


def _exists(group: GroupSnapshot | None) -> bool:
    return group is not None and group.state != DEAD


def _is_due(kind: _Kind, known: _Known | None, names: Sequence[Any], now: datetime) -> bool:
    return known is None or known.names != names or now - known.observed_at >= kind.every


def _with_changes(found: Iterable[BrokerFact], before: Iterable[BrokerFact], now: datetime) -> Iterator[BrokerFact]:
    """Yield the facts with the values that they had before, and since when they have others."""
    known = {(one.subject, one.name): one for one in before}
    for fact in found:
        old = known.get((fact.subject, fact.name), fact)
        last = (old.value_before, old.changed_at) if old.value == fact.value else (old.value, now)
        yield fact._replace(value_before=last[0], changed_at=last[1])


def _internal_topics(row: Mapping[str, Any]) -> Iterator[InternalTopic]:
    for column in _INTERNAL_COLUMNS:
        for topic in row[column] or ():
            configs = tuple(sorted(dict(topic["topic_configs"] or ()).items()))
            sizes = topic["partitions"] or 0, topic["replication_factor"] or 0
            yield InternalTopic(row["group_id"], topic["name"], *sizes, configs)


def _earlier_names(row: Mapping[str, Any]) -> set[str]:
    """Return the internal topics of a row of `topologies` whose names are such as Kafka Streams makes for its group."""
    return {
        topic["name"]
        for subtopology in row["subtopologies"] or ()
        for column in _INTERNAL_COLUMNS
        for topic in subtopology[column] or ()
        if is_internal_topic(topic["name"], row["group_id"])
    }


def _owners(topic: str) -> Iterator[str]:
    """Yield the ids of the groups for which an internal topic may be: what comes before each dash."""
    return (topic[:place] for place, character in enumerate(topic) if character == "-")


def make_broker_facts(job: PolledBy) -> BrokerFacts:
    """Return the poller of a job."""
    config = job.config
    return BrokerFacts(
        job.polling(_NEEDS),
        lambda: closing(connect(job.properties)),
        job.groups,
        config.warehouse,
        config.cluster,
        job.fence,
    )
