"""What the job would say of each group now, before its first run: for `check`. It writes nothing.

Theory of operation
-------------------
The offsets topic is read with kafka-python, one partition after the other, for a limited time. The records of groups
of Kafka Streams are folded, one lag pass asks the brokers for commits and ends, and the alert engine judges, all with
the code of the job. What only time shows stays unknown: whether a group without a known past is behind, and what lasts
for too short a time. Groups in partitions that were not read in time are not counted, and the result says so.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
from kafka.errors import KafkaError, UnsupportedCodecError
from typing_extensions import Self

from streaming_app.alerts.alert import severity_rank
from streaming_app.alerts.engine import AlertEngine
from streaming_app.alerts.engine_facts import DescriptionSupport, Observed
from streaming_app.checks.hidden import hidden_parts
from streaming_app.checks.result import Result, ok, skipped, warning
from streaming_app.config.settings import JobConfig
from streaming_app.errors import error_line
from streaming_app.groups.classic import is_of_assignor, time_of
from streaming_app.groups.fold import CLASSIC_GROUP
from streaming_app.groups.replay import RECORD_TYPES
from streaming_app.groups.snapshot import group_snapshot
from streaming_app.health.board import STREAMS
from streaming_app.health.group_history import GroupHistories
from streaming_app.health.verdict import BAD, PENDING, PROTOCOL, UNKNOWN, WORST_FIRST, Verdict
from streaming_app.job.lag_pass import LagPass, PassResult
from streaming_app.job.lag_service import lag_tracker
from streaming_app.job.services import engine_settings
from streaming_app.kafka import fact_requests
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.error_lines import REQUEST_ERRORS
from streaming_app.kafka.log_records import LogReader, Range
from streaming_app.kafka.topic_reader import EARLIEST, LATEST, read_offsets
from streaming_app.lag.model import Commit, CommitKey, GroupTasks
from streaming_app.lag.open_transactions import NO_TRANSACTIONS, Transactions, held_for_long
from streaming_app.lag.work import GroupWork
from streaming_app.report import Report
from streaming_app.stream.batch_rows import events_of
from streaming_app.stream.fold_stage import fold_group
from streaming_app.stream.group_result import FoldOptions, LogRow, group_of_key
from streaming_app.stream.newest_records import COLUMNS, COMMIT, COMMITS, to_rows
from streaming_app.text import count, first_of

CHECK = "groups now"
READ_SECONDS = 60.0
"""How long the log is read at most."""
_REPORT_SECONDS = 2.0
_NAMED = 3
_MANY = 500  # groups: to ask about them may take longer than a moment
_NONE = "the log has no streams group yet"


class LogTables:
    """What a lag pass reads of `LagTables`, in memory, of groups that exist. A group is in one partition."""

    def __init__(self, options: FoldOptions, now: datetime) -> None:
        self._options, self._now = options, now
        self._records: defaultdict[bytes, list[LogRow]] = defaultdict(list)  # of the partition that is being read
        self._newest: dict[bytes, LogRow] = {}  # commits of it
        self._commits: dict[CommitKey, Commit] = {}
        self._records_of_commits: dict[CommitKey, tuple[int, int]] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        self.histories = GroupHistories()

    def add(self, record: Any) -> None:  # noqa: ANN401 - kafka-python's
        """Take a record of a partition."""
        key = record.key or b""
        kind, group = int.from_bytes(key[:2], "big"), key[4 : 4 + int.from_bytes(key[2:4], "big")]
        row = group, record.offset, record.partition, time_of(record.timestamp), key, record.value, None
        if kind in COMMITS:
            self._newest[COMMIT.to_bytes(2, "big") + key[2:]] = row
        elif kind in RECORD_TYPES:
            self._records[group].append(row)
        elif kind == CLASSIC_GROUP:  # only the last one counts, and each may have a megabyte
            before = [one for one in self._records[group] if one[4] == key and one[5] and is_of_assignor(one[5])][-1:]
            kept = [one for one in self._records[group] if one[4] != key]
            # and before one without members, which does not say that it is of Kafka Streams, one that does
            self._records[group] = [*kept, *(before if row[5] and not is_of_assignor(row[5]) else ()), row]

    def end_partition(self) -> None:
        """Fold the records of the partition, which was read to its end."""
        for records in self._records.values():
            for folded in fold_group(iter(records), self._options, None):
                for row in folded.rows.get("groups", ()):
                    if row["group_type"] == row["protocol"] and row["deleted_at"] is None:
                        self.rows[row["group_id"]] = row
                for event in events_of(folded.rows):
                    self.histories.add(event["group_id"], event, self._now)
        for key, (_, offset, partition, at, _, value, _) in self._newest.items():
            if group_of_key(key) in self.rows:
                microseconds = None if at is None else round(at.timestamp() * 1e6)
                values = partition, offset, microseconds, key, value
                for row in to_rows([dict(zip(COLUMNS, values, strict=True))], self._options).offset_commits:
                    self._add_commit(row)
        self._records.clear()
        self._newest.clear()

    def _add_commit(self, row: Mapping[str, Any]) -> None:
        if row.get("committed_offset") is not None:
            committed_at, time = (row[name] and row[name] / 1e6 for name in ("committed_at", "partition_time"))
            values = row["committed_offset"], row["topic_id"], row["leader_epoch"]
            key = row["group_id"], row["topic"], row["partition"]
            self._commits[key] = Commit(*values, committed_at, time)
            self._records_of_commits[key] = row["source_partition"], row["last_offset"]

    def reader(self) -> Self:
        """Return this: there are no files."""
        return self

    def versions(self, _: str) -> object:
        """Return what never changes: the log was read once."""
        return ()

    def commits(self, _: object) -> dict[CommitKey, Commit]:
        """Return the newest commits."""
        return dict(self._commits)

    def records_of_commits(self, _: object, keys: Collection[CommitKey]) -> dict[CommitKey, tuple[int, int]]:
        """Return the partition and offset in the log of these commits."""
        return {key: self._records_of_commits[key] for key in keys if key in self._records_of_commits}

    def group_versions(self, _: object) -> pa.Table:
        """Return the groups."""
        return pa.table({"group_id": pa.array(self.rows, pa.string())})

    def groups(self, _: object, group_ids: Collection[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of these groups."""
        return (self.rows[group_id] for group_id in group_ids)

    def other_groups(self, _: object) -> tuple[dict[str, GroupTasks], Counter[str]]:
        """Return nothing: the verdicts are on Kafka Streams."""
        return {}, Counter()


def look(properties: Mapping[str, str], config: JobConfig, report: Report, seconds: float = READ_SECONDS) -> Result:
    """Return in one line what the job would say of the groups. It asks the brokers; `report` gets the progress."""
    now = datetime.now(timezone.utc)
    tables = LogTables(FoldOptions(config.cluster, config.topic, classic_streams=config.classic_streams.enabled), now)
    try:
        with StreamsGroupClient.of(properties) as client:
            _, (starts, ends) = read_offsets(client, config.topic, EARLIEST, LATEST)
            ranges = {one: (start, ends[one]) for one, start in starts.items()}
            unread = _read_log(properties, config.topic, ranges, tables, report, seconds)
            if len(tables.rows) > _MANY:
                report(f"asking the brokers for the offsets of {count(len(tables.rows), 'group')} ...")
            passes = LagPass(tables, lag_tracker(config))
            passes.run(client)
            lag = passes.run(client)  # confirms what the first pass takes from the past: see `Standing.is_stalled`
            transactions = _transactions(client, lag.work)
    except (UnsupportedCodecError, *REQUEST_ERRORS) as error:
        return skipped(CHECK, f"what the job would say is not known: {error_line(error)}")
    engine = AlertEngine(engine_settings(config), (), DescriptionSupport(config.alerts.descriptions))
    groups = {group_id: group_snapshot(row) for group_id, row in tables.rows.items()}
    now = datetime.now(timezone.utc)
    engine.step(Observed(groups, tables.histories.groups(), lag.work, away=lag.away, transactions=transactions), now)
    protocols = config.alerts.protocols
    return describe(engine.board.verdicts(), lag, unread=len(unread), partitions=len(ends), protocols=protocols)


def _transactions(client: StreamsGroupClient, work: Mapping[str, GroupWork]) -> Transactions:
    held, longest = held_for_long(work.values()), None
    if not held:
        return NO_TRANSACTIONS
    with suppress(KafkaError):  # no DescribeConfigs on the cluster
        longest = fact_requests.longest_transaction(fact_requests.configs_of_brokers(client, client.broker_ids()))
    found = fact_requests.open_transactions(client, {topic for topic, _ in held})
    first = fact_requests.first_producers(client, held, found)
    return Transactions(fact_requests.by_partition(found), longest, first)


def _read_log(  # noqa: PLR0913, PLR0917 - what to read with, and how long
    properties: Mapping[str, str],
    topic: str,
    ranges: Mapping[int, Range],
    tables: LogTables,
    report: Report,
    seconds: float,
) -> set[int]:
    """Read the topic; return the partitions that were not read to their ends in time."""
    began = said = time.monotonic()
    unread, records = set(ranges), 0
    with LogReader(properties, topic) as log:
        for partition, one in sorted(ranges.items()):
            for record in log.read({partition: one}):
                tables.add(record)
                records += 1
                if (now := time.monotonic()) - began >= seconds:
                    return unread
                if now - said > _REPORT_SECONDS:
                    report(
                        f"reading {topic}: {records:,} records; {len(unread)} of {len(ranges)} partitions are left ..."
                    )
                    said = now
            tables.end_partition()
            unread.remove(partition)
    return unread


def describe(
    verdicts: Mapping[str, Verdict], lag: PassResult, *, unread: int, partitions: int, protocols: str = STREAMS
) -> Result:
    """Return the result: how many groups have each verdict, and what is not known for lack of which right.

    `protocols`: the setting `alerts.protocols`.
    """
    by_verdict = defaultdict[str, list[str]](list)
    for group_id in sorted(verdicts, key=lambda one: (severity_rank(verdicts[one].severity), one)):
        by_verdict[verdicts[group_id].verdict].append(group_id)
    texts = [
        f"{len(groups):,} {verdict}" + (f" ({first_of(groups, _NAMED)})" if verdict in BAD else "")
        for verdict in WORST_FIRST
        if (groups := by_verdict[verdict])
    ]
    soon = [one.evidence[PENDING] for one in verdicts.values() if PENDING in one.evidence]
    texts += [f"{number:,} {verdict} soon unless that ends" for verdict, number in Counter(soon).items()]
    if held := sum(bool(one.held) for one in lag.work.values()):
        texts.append(f"{held:,} held by a transaction")
    hidden, counted = list(hidden_parts(lag.errors)), set[str]()
    for right in ("Describe", "Read"):
        names = {(one.kind, name) for one in hidden if one.right == right for name in one.names}
        found = {
            group_id
            for group_id in by_verdict[UNKNOWN]
            if ("group", group_id) in names
            or (group_id in lag.work and any(("topic", topic) in names for topic, _ in lag.work[group_id].progress))
        } - counted
        if found:
            texts.append(f"of the Unknown {len(found):,} for lack of {right}")
        counted |= found
    whose = count(len(verdicts), "streams group")
    if classic := sum(PROTOCOL in one.evidence for one in verdicts.values()):
        off = f" and no alerts (alerts.protocols: {STREAMS})" if protocols == STREAMS else ""
        whose = f"{count(len(verdicts), 'group')} of Kafka Streams, {classic:,} with the classic protocol{off}"
    text = f"the job would say of {whose}: {', '.join(texts)}" if verdicts else _NONE
    if unread:
        text += f"; {unread} of {partitions} partitions of the log were not read in time: their groups are not counted"
    if hidden:
        return warning(CHECK, text, "; ".join(one.line for one in hidden))
    return warning(CHECK, text) if unread else ok(CHECK, text)
