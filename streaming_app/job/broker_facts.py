"""The service of the table `broker_facts`: facts that explain a group's lag and that only the brokers know.

Each pass asks for the kinds of facts that are due. If a kind cannot be read now, because a broker is away or an ACL was
removed, its earlier facts stay, with the time at which they were true, even across a restart: they are old, not wrong.
Configs of groups and brokers change rarely. So the service asks for them again after ten minutes, and when the groups
change.

The table is replaced in one commit when a fact has changed, and every ten minutes to update the times.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from kafka.errors import KafkaError

from streaming_app import kafka as kinds
from streaming_app.alerts.engine_facts import TopicDifference
from streaming_app.groups.group import CLASSIC
from streaming_app.groups.partition import OFFSETS_TOPIC
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import DEAD
from streaming_app.groups.topology import is_internal_topic
from streaming_app.job.service import Job, Poller
from streaming_app.kafka import ASKED_FOR, fact_requests
from streaming_app.kafka.connection import Admin
from streaming_app.kafka.fact_requests import BrokerFact, Row
from streaming_app.kafka.protocol import GroupError
from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.open_transactions import Transactions
from streaming_app.lag.work import retention_seconds
from streaming_app.report import ReportOnce
from streaming_app.tables.rust_table import RustTable
from streaming_app.text import escape, first_of

NAME = "broker_facts"
_NEEDS = "broker facts need Describe on the groups, their topics and transactional ids"
_RARELY = timedelta(minutes=10)
_MOST_WRITERS = 10_000  # facts: everybody who may write can choose transactional ids
_WRITTEN_EVERY = timedelta(minutes=10)
_NAMED = 3  # transactions in a line
_SINKS = "is_newest AND from_kind = 'sink' AND to_kind = 'topic'"
_INTERNAL_COLUMNS = ("repartition_source_topics", "state_changelog_topics")


class _Asked(NamedTuple):
    """What the brokers are asked about."""

    groups: Sequence[str]
    """Streams groups."""
    topics: Sequence[str]
    """The topics that the groups read, and in which they keep their state."""
    internal: Sequence[Row]
    """The internal topics of their topologies, as `subtopologies` has them, each with the `group_id`."""
    sinks: Collection[tuple[str, str]]
    """The topics that descriptions name as sinks, each with the group; without internal topics."""
    classic: Collection[str]
    """Groups of Kafka Streams with the classic protocol."""


@dataclass(frozen=True)
class _Known:
    """The known facts of a kind."""

    facts: Sequence[BrokerFact]
    observed_at: datetime
    groups: Sequence[str] | None = None
    """The streams groups at the last request; None: the facts are those of the table."""

    @cached_property
    def differing(self) -> Mapping[str, Sequence[BrokerFact]]:
        """The facts that name a difference from what a group asked for, by group."""
        found = defaultdict[str, list[BrokerFact]](list)
        for one in self.facts:
            if one.group_id and ASKED_FOR in one.value:
                found[one.group_id].append(one)
        return found


class BrokerFacts(Poller):
    """Polls from `start` to `close`."""

    def __init__(self, job: Job, held: Callable[[], Sequence[TopicPartition]] = list) -> None:
        """Prepare; `held` returns the partitions where groups have waited for an open transaction for long."""
        super().__init__("broker facts", job, _NEEDS)
        self._table = RustTable(job.config.warehouse / NAME, job.config.cluster, job.fence)
        self._known: dict[str, _Known] = {}
        self._written: Sequence[BrokerFact] = ()
        self._written_at: datetime | None = None
        self._held = held
        self._open: Transactions | None = None
        self._uncleaned = ReportOnce(self.report)
        # The kinds of facts, how they are asked for, and whether that is done rarely, and when the groups change.
        self._sources: tuple[tuple[Sequence[str], Callable[[Admin, _Asked], Sequence[BrokerFact]], bool], ...] = (
            ([kinds.GROUP_CONFIG], lambda admin, asked: fact_requests.group_configs(admin, asked.groups), True),
            ([kinds.BROKER_CONFIG], lambda admin, _: fact_requests.configs_of_brokers(admin, admin.broker_ids()), True),
            ([kinds.COORDINATOR], lambda admin, _: fact_requests.coordinators(admin), False),
            ([kinds.GROUP_STATE], lambda admin, _: fact_requests.group_states(admin), False),
            ([kinds.FEATURE], lambda admin, _: fact_requests.features(admin), False),
            (
                [kinds.RETENTION, kinds.ISR, kinds.INTERNAL_TOPIC],
                lambda admin, asked: fact_requests.topic_facts(admin, asked.topics, asked.internal),
                False,
            ),
            ([kinds.CHANGELOG], lambda admin, asked: fact_requests.changelogs_of(admin, asked.classic), True),
            ([kinds.TRANSACTION, kinds.WRITER], self._transactions, False),
            ([kinds.SINK], lambda admin, asked: fact_requests.sink_facts(admin, asked.sinks), False),
        )

    def tick(self) -> None:
        """Make one pass. Raises errors of tables, and, after every kind was tried, an error of the brokers."""
        self._known = self._known or self._read()
        now, asked, errors = self._now(), self._asked(), []
        with self._job.connection.use() as admin:
            for of_source, ask, is_rare in self._sources:
                known = self._known.get(of_source[0])
                if is_rare and known and known.groups == asked.groups and now - known.observed_at < _RARELY:
                    continue
                try:
                    found = ask(admin, asked)
                except (KafkaError, GroupError) as error:
                    errors.append(error)
                else:
                    for kind in of_source:
                        self._note(kind, sorted(fact for fact in found if fact.kind == kind), now, asked.groups)
            if errors:
                self._job.connection.failed(admin)
        self._write(now)
        if errors:
            raise errors[0]

    def retention(self) -> Mapping[str, float]:
        """Return for how many seconds a topic keeps records, for the topics that delete records by age."""
        return retention_seconds((one.subject, one.name, one.value) for one in self._facts(kinds.RETENTION))

    def transactions(self) -> Transactions | None:
        """Return the open transactions on topics of groups; None before the first pass."""
        if self._open is None:
            return None
        return replace(self._open, longest=fact_requests.longest_transaction(self._facts(kinds.BROKER_CONFIG)))

    def acceptable_lags(self) -> Mapping[str, int]:
        """Return the config `streams.acceptable.recovery.lag` by group, for groups that have one."""
        known = self._facts(kinds.GROUP_CONFIG)
        return {one.subject: int(one.value) for one in known if one.name == fact_requests.ACCEPTABLE_LAG}

    def sinks(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return by group the topics to which it writes and cannot now, and why not."""
        found, groups = defaultdict[str, list[tuple[str, str]]](list), self._job.groups()
        for one in self._facts(kinds.SINK):
            if _exists(groups.get(one.name)):
                found[one.name].append((one.subject, one.value))
        return found

    def topic_differences(self) -> Mapping[str, Sequence[TopicDifference]] | None:
        """Return by group how internal topics differ from the group's topology; None before the first pass."""
        known, groups = self._known.get(kinds.INTERNAL_TOPIC), self._job.groups()
        if known is None:
            return None
        return {
            group_id: [
                TopicDifference(one.subject, one.name, one.value, one.changed_at or known.observed_at) for one in found
            ]
            for group_id, found in known.differing.items()
            if _exists(groups.get(group_id))
        }

    def _note(self, kind: str, found: Sequence[BrokerFact], now: datetime, groups: Sequence[str]) -> None:
        """Note the facts of a kind, with their earlier values and the time of the last change."""
        before = {(one.subject, one.name): one for one in self._facts(kind)}
        facts = []
        for fact in found:
            old = before.get((fact.subject, fact.name), fact)
            last = (old.value_before, old.changed_at) if old.value == fact.value else (old.value, now)
            facts.append(fact._replace(value_before=last[0], changed_at=last[1]))
        self._known[kind] = _Known(facts, now, groups)

    def _facts(self, kind: str) -> Sequence[BrokerFact]:
        known = self._known.get(kind)
        return known.facts if known else ()

    def _asked(self) -> _Asked:
        """Return the groups, and the topics that they read and in which they keep their state."""
        sources = {row["topic"] for row in self._job.rows("subtopologies", "DISTINCT unnest(source_topics) AS topic")}
        internal = [
            {**row["topic"], "group_id": row["group_id"]}
            for column in _INTERNAL_COLUMNS
            for row in self._job.rows(
                "subtopologies", f"group_id, unnest({column}) AS topic", f"protocol <> '{CLASSIC}'"
            )
        ]
        groups = sorted(key for key, one in self._job.groups().items() if _exists(one) and one.group_type == "streams")
        edges = self._job.rows("description_edges", "group_id, to_node", _SINKS)
        named = {(row["to_node"], row["group_id"]) for row in edges}
        sinks = {one for one in named if not is_internal_topic(*one)}
        of_classic = self._job.rows("subtopologies", "DISTINCT group_id", f"protocol = '{CLASSIC}'")
        classic = {row["group_id"] for row in of_classic}
        topics = sorted(sources.union(topic["name"] for topic in internal))
        return _Asked(groups, topics, internal, sinks, classic)

    def _transactions(self, admin: Admin, asked: _Asked) -> list[BrokerFact]:
        """Return overdue transactions, and all writers ever seen of groups that exist: some have none open now."""
        topics, groups = {*asked.topics, OFFSETS_TOPIC}, self._job.groups()
        open_now = fact_requests.open_transactions(admin, topics)
        first = fact_requests.first_producers(admin, self._held(), open_now)
        self._open = Transactions(fact_requests.by_partition(open_now), first=first)
        found = fact_requests.transaction_facts(open_now, topics)
        writers = [one for one in (*self._facts(kinds.WRITER), *found) if one.kind == kinds.WRITER]
        kept = {(one.subject, one.name): one for one in writers if _exists(groups.get(one.name))}
        overdue = [one for one in found if one.kind == kinds.TRANSACTION]
        uncleaned = [one for one in overdue if one.subject.startswith(f"{OFFSETS_TOPIC}-")]
        named = first_of([f"{one.subject} by {one.name}, {one.value}" for one in uncleaned], _NAMED, separator="; ")
        if uncleaned:
            self._uncleaned(
                f"{NAME}: the brokers do not compact {OFFSETS_TOPIC} behind an open transaction: {escape(named)}; "
                "`kafka-transactions.sh abort` ends it"
            )
        else:
            self._uncleaned.clear()
        return overdue + [kept[key] for key in sorted(kept)][:_MOST_WRITERS]

    def _read(self) -> dict[str, _Known]:
        """Return the facts in the table; those of a kind that an older release asked for go."""
        rows = self._job.rows(NAME, ", ".join(f'"{name}"' for name in (*BrokerFact._fields, "observed_at")))
        stored: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            stored[row["kind"]].append(row)
        return {
            kind: _Known(
                sorted(BrokerFact(**{name: row[name] for name in BrokerFact._fields}) for row in stored[kind]),
                min(row["observed_at"] for row in stored[kind]),
            )
            for of_source, *_ in self._sources
            for kind in of_source
            if kind in stored
        }

    def _write(self, now: datetime) -> None:
        known = self._known
        facts = [fact for kind in sorted(known) for fact in known[kind].facts]
        is_old = self._written_at is None or now - self._written_at >= _WRITTEN_EVERY
        if self.stopping.is_set() or (facts == self._written and not is_old):
            return
        rows = ({**fact._asdict(), "observed_at": known[fact.kind].observed_at} for fact in facts)
        self._table.replace(self._table.to_table(rows))
        self._written, self._written_at = facts, now


def _exists(group: GroupSnapshot | None) -> bool:
    return group is not None and group.state != DEAD
