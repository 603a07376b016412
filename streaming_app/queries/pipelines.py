"""The pipelines of a cluster: which groups read and write which topics, and at which group a backlog begins.

The topics that a group reads are known from its commits and from the topology of a streams group. Of the topics that it
writes, the log names only repartition topics. Others are known from a stored topology description, or from a
transaction of the group that the job has seen (`writer` in `broker_facts`). So a topic without a known writer may have
one, and upstream and downstream groups are complete only for known edges. Internal topics count only if a second group
uses them.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from streaming_app.groups.description import SINK, TOPIC
from streaming_app.kafka import WRITER
from streaming_app.queries.lag import Lag
from streaming_app.tables.reader import WarehouseReader, quote

_Value = TypeVar("_Value")
RATE_SECONDS = 600.0
"""The seconds before the newest known end of a log over which its write rate is computed."""


class Read(NamedTuple):
    """A topic that a group reads, with its lag."""

    group_id: str
    topic: str
    lag: Lag = Lag()


Write = tuple[str, str]
"""A group, and a topic that it writes."""


class Root(NamedTuple):
    """A group in trouble that has no group in trouble upstream."""

    group_id: str
    downstream: tuple[str, ...]
    """The groups that directly or indirectly read what it writes, nearest first."""
    behind: tuple[str, ...]
    """The groups among `downstream` that are in trouble."""


class Pipelines:
    """The known edges between groups and topics."""

    def __init__(
        self,
        reads: Iterable[Read] = (),
        writes: Iterable[Write] = (),
        undescribed: Iterable[str] = (),
        rates: Mapping[str, float] | None = None,
    ) -> None:
        self.reads, written = tuple(reads), sorted(writes)
        self.undescribed = frozenset(undescribed)
        """Streams groups without a complete stored description: the topics that they write are not known."""
        self.rates = rates or {}
        """By topic, records per second that are written to it, if known."""
        self._reads = _grouped((one.topic, one) for one in self.reads)
        self._writers = _grouped((topic, group_id) for group_id, topic in written)
        self._read_by = _grouped((one.group_id, one.topic) for one in self.reads)
        self._written_by = _grouped(written)

    @property
    def topics(self) -> list[str]:
        """All topics, sorted by name."""
        return sorted(self._reads.keys() | self._writers.keys())

    @property
    def group_ids(self) -> list[str]:
        """All groups that read or write a topic, sorted by name."""
        return sorted(self._read_by.keys() | self._written_by.keys())

    def reads_of(self, topic: str) -> Sequence[Read]:
        """Return the reads of a topic."""
        return self._reads.get(topic, ())

    def writers(self, topic: str) -> list[str]:
        """Return the groups that are known to write a topic, sorted by name."""
        return self._writers.get(topic, [])

    def downstream(self, group_id: str) -> tuple[str, ...]:
        """Return the groups that directly or indirectly read what this group writes, nearest first."""
        return _reach(group_id, self._written_by, lambda topic: (one.group_id for one in self.reads_of(topic)))

    def upstream(self, group_id: str) -> tuple[str, ...]:
        """Return the groups whose results this group directly or indirectly reads, nearest first."""
        return _reach(group_id, self._read_by, self.writers)

    def roots(self, troubled: Collection[str]) -> list[Root]:
        """Return the groups where trouble begins; first the one with most groups in trouble downstream.

        Groups that write for each other in a cycle are each other's roots.
        """
        found = []
        for group_id in sorted(troubled):
            after = self.downstream(group_id)
            before = set(self.upstream(group_id)) - set(after)
            if not before.intersection(troubled):
                found.append(Root(group_id, after, tuple(one for one in after if one in troubled)))
        return sorted(found, key=lambda one: (-len(one.behind), -len(one.downstream), one.group_id))


def _grouped(pairs: Iterable[tuple[str, _Value]]) -> Mapping[str, list[_Value]]:
    found: dict[str, list[_Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def _reach(
    start: str, topics_of: Mapping[str, Sequence[str]], groups_of: Callable[[str], Iterable[str]]
) -> tuple[str, ...]:
    """Follow topics, each once: a topic of all groups has as many pairs of a writer and a reader as groups squared."""
    found, waiting, followed = dict.fromkeys([start]), deque([start]), set[str]()
    while waiting:
        topics = [one for one in topics_of.get(waiting.popleft(), ()) if one not in followed]
        followed.update(topics)
        for one in sorted({group_id for topic in topics for group_id in groups_of(topic)} - found.keys()):
            found[one] = None
            waiting.append(one)
    return tuple(found)[1:]


# --- Reading the pipelines --------------------------------------------------------------------------------------------

_LAG = """
SELECT group_id, topic, lag, lag_seconds, is_lower_bound, unknown_partitions FROM lag_sums
WHERE summed_by = 'topic' AND cluster = {cluster}
"""
_COMMITS = "SELECT DISTINCT group_id, topic FROM offsets WHERE cluster = {cluster}"
_TOPOLOGIES = """
SELECT group_id, source_topics, repartition_sink_topics, repartition_source_topics, state_changelog_topics
FROM subtopologies WHERE cluster = {cluster} AND protocol = 'streams'
"""
_GROUPS = (
    "SELECT group_id FROM groups WHERE cluster = {cluster} AND group_type = 'streams' AND state IS DISTINCT FROM 'Dead'"
)
_SINKS = f"""
SELECT group_id, to_node AS topic FROM description_edges
WHERE cluster = {{cluster}} AND is_newest AND from_kind = '{SINK}' AND to_kind = '{TOPIC}'
"""  # noqa: S608 - our own constants
_WRITERS = f"SELECT group_id, subject AS topic FROM broker_facts WHERE cluster = {{cluster}} AND kind = '{WRITER}'"  # noqa: S608
_DESCRIBED = "SELECT DISTINCT group_id FROM descriptions WHERE cluster = {cluster} AND is_newest AND NOT truncated"
# A topic has dozens of samples per partition: the query returns only the rates.
_TOPIC_RATES = f"""
WITH samples AS (
  SELECT topic, partition, times[-1] - INTERVAL '{RATE_SECONDS:.0f} seconds' AS due,
    unnest(times) AS at, unnest(end_offsets) AS ends
  FROM log_ends WHERE cluster = {{cluster}}),
pairs AS (
  SELECT topic, last_value(ends ORDER BY at) - coalesce(
      last_value(ends ORDER BY at) FILTER (WHERE at <= due), first_value(ends ORDER BY at)) AS new,
    CAST(max(at) AS BIGINT) - CAST(coalesce(max(CASE WHEN at <= due THEN at END), min(at)) AS BIGINT) AS lasts
  FROM samples GROUP BY topic, partition)
SELECT topic, sum(greatest(0.0, 1e6 * new / lasts)) AS rate FROM pairs WHERE lasts > 0 GROUP BY topic
"""  # noqa: S608 - our own constants


def read_pipelines(reader: WarehouseReader, cluster: str) -> Pipelines:
    """Return the pipelines of a cluster, as in the tables. Raises WarehouseError."""

    def rows(sql: str) -> list[dict[str, Any]]:
        return list(reader.rows(sql.replace("{cluster}", quote(cluster))))

    topologies = rows(_TOPOLOGIES)
    living = {row["group_id"] for row in rows(_GROUPS)}
    seen = rows(_WRITERS)
    return pipelines(
        rows(_LAG) or rows(_COMMITS),  # if no group has a lag, the job does not measure lag
        [row for row in topologies if row["group_id"] in living],
        [*(row for row in rows(_SINKS) if row["group_id"] in living), *seen],
        living - {row["group_id"] for row in (*rows(_DESCRIBED), *seen)},
        {row["topic"]: row["rate"] for row in rows(_TOPIC_RATES)},
    )


def pipelines(
    lag: Iterable[Mapping[str, Any]],
    topologies: Iterable[Mapping[str, Any]],
    sinks: Iterable[Mapping[str, Any]],
    undescribed: Iterable[str] = (),
    rate_of: Mapping[str, float] | None = None,
) -> Pipelines:
    """Return the pipelines from rows of `lag_sums` or `offsets`, `subtopologies`, and sinks with their topics."""
    reads = {
        (row["group_id"], row["topic"]): Read(
            row["group_id"], row["topic"], Lag(**{name: row[name] for name in row.keys() & Lag._fields})
        )
        for row in lag
    }
    writes = {(row["group_id"], row["topic"]) for row in sinks}
    internal = set[tuple[str, str]]()
    for row in topologies:
        group_id = row["group_id"]
        changelogs = _names(row["state_changelog_topics"])
        repartition = {*_names(row["repartition_source_topics"]), *(row["repartition_sink_topics"] or ())}
        internal.update((group_id, topic) for topic in repartition | (changelogs - {*(row["source_topics"] or ())}))
        for topic in (*(row["source_topics"] or ()), *_names(row["repartition_source_topics"])):
            reads.setdefault((group_id, topic), Read(group_id, topic))
        writes.update((group_id, topic) for topic in row["repartition_sink_topics"] or ())
    users = defaultdict[str, set[str]](set)
    for group_id, topic in (*reads, *writes):
        users[topic].add(group_id)

    def is_shown(group_id: str, topic: str) -> bool:
        return (group_id, topic) not in internal or len(users[topic]) > 1

    return Pipelines(
        (one for key, one in sorted(reads.items()) if is_shown(*key)),
        (one for one in writes if is_shown(*one)),
        undescribed,
        rate_of,
    )


def _names(topics: Iterable[Mapping[str, Any]] | None) -> set[str]:
    return {one["name"] for one in topics or ()}


# --- Groups that are drawn as one -------------------------------------------------------------------------------------


_FAMILY = 3  # the least number of groups


def families(group_ids: Iterable[str], label: Callable[[str], str | None]) -> Iterator[tuple[str, list[str]]]:
    """Yield families of three or more groups: those with the same label, or without a label a common prefix."""
    found = defaultdict[str, list[str]](list)
    for group_id in group_ids:
        found[label(group_id) or _begin(group_id)].append(group_id)
    for name, members in sorted(found.items()):
        if len(members) >= _FAMILY:
            yield name, members


def _begin(group_id: str) -> str:
    end = next((place for place, sign in enumerate(group_id) if sign in "-._/:" and place), len(group_id))
    return group_id[:end]
