"""The real topics of topologies: their partitions, the topics that match a pattern, and the members that serve them.

The log has the topics that an application asked for. Only the brokers know which topics exist: the job asks them for
the lag of each partition of source topics, and compares internal topics with the topology.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from streaming_app.groups.group import ACTIVE
from streaming_app.kafka import ASKED_FOR, INTERNAL_TOPIC
from streaming_app.kafka import CHANGELOG as CHANGELOGS
from streaming_app.tables.reader import Row, WarehouseReader, of_groups, quote
from streaming_app.text import count

SOURCE, BY_PATTERN, PATTERN, REPARTITION, CHANGELOG = "source", "by pattern", "pattern", "repartition", "changelog"
_READ = (SOURCE, BY_PATTERN, REPARTITION)


class Topic(NamedTuple):
    """A topic of a subtopology, or a pattern that matches no topic yet."""

    subtopology_id: str
    name: str
    kind: str
    """`source`, `by pattern`, `pattern`, `repartition` or `changelog`."""
    partitions: int | None
    """Number of partitions; None if it is not known, or the topic does not exist."""
    asked_for: int | None = None
    """The number of partitions in the topology; None if it leaves the number to the brokers."""

    @property
    def text(self) -> str | None:
        """Its number of partitions, and the one asked for if that differs; None if it is not known."""
        if self.partitions is None:
            return f"{self.asked_for} partitions asked for" if self.asked_for else None
        found = count(self.partitions, "partition")
        return f"{found}{ASKED_FOR}{self.asked_for}" if self.asked_for not in {None, self.partitions} else found


def read_topics(
    reader: WarehouseReader, cluster: str, groups: Iterable[Mapping[str, Any]]
) -> dict[str, Sequence[Topic]]:
    """Return by group the topics of these rows of `groups`. Raises WarehouseError."""
    rows = {group["group_id"]: group for group in groups}
    if not rows:
        return {}
    where = of_groups(cluster, rows)
    read: dict[str, dict[tuple[str, str], int]] = {group_id: {} for group_id in rows}
    for row in reader.rows(
        f"SELECT group_id, subtopology_id, topic, count(*) AS partitions FROM lag WHERE {where} "  # noqa: S608 - quoted
        "AND subtopology_id IS NOT NULL GROUP BY group_id, subtopology_id, topic"
    ):
        read[row["group_id"]][row["subtopology_id"], row["topic"]] = row["partitions"]
    internal = internal_partitions(reader, where)
    return {
        group_id: [*topics_of(row["subtopologies"] or (), read[group_id], internal[group_id])]
        for group_id, row in rows.items()
    }


def internal_partitions(reader: WarehouseReader, where: str) -> Mapping[str, dict[str, int]]:
    """Return by group the numbers of partitions of its internal topics, with the classic protocol of its changelogs."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in reader.rows(
        f"SELECT group_id, subject, value FROM broker_facts WHERE {where} "  # noqa: S608 - quoted
        f"AND kind IN ({quote(INTERNAL_TOPIC)}, {quote(CHANGELOGS)}) AND name = 'partitions'"
    ):
        found[row["group_id"]][row["subject"]] = int(row["value"].partition(ASKED_FOR)[0])
    return found


def topics_of(
    subtopologies: Iterable[Mapping[str, Any]], read: Mapping[tuple[str, str], int], internal: Mapping[str, int]
) -> Iterator[Topic]:
    """Yield the topics of the column `subtopologies`.

    The number of partitions of topics that are read is in `read`, by subtopology and topic; of internal topics it is in
    `internal`.
    """
    for part in subtopologies:
        own = part["subtopology_id"]
        sources, repartitions = part["source_topics"] or (), part["repartition_source_topics"] or ()
        for name in sources:
            yield Topic(own, name, SOURCE, read.get((own, name)))
        if patterns := part["source_topic_regex"] or ():
            named = {*sources, *(topic["name"] for topic in repartitions)}
            found = {name: number for (of, name), number in sorted(read.items()) if of == own and name not in named}
            yield from (Topic(own, name, BY_PATTERN, number) for name, number in found.items())
            yield from (Topic(own, name, PATTERN, None) for name in patterns if not found)
        for kind, topics in ((REPARTITION, repartitions), (CHANGELOG, part["state_changelog_topics"] or ())):
            for topic in topics:
                name = topic["name"]
                yield Topic(own, name, kind, internal.get(name, read.get((own, name))), topic["partitions"] or None)


def topic_rows(topics: Mapping[str, Iterable[Topic]]) -> list[Row]:
    """Return a row for each topic of each group, as `describe --topology --verbose` prints it."""
    return [
        {
            "GROUP": group_id,
            "SUBTOPOLOGY": topic.subtopology_id,
            "TOPIC": topic.name,
            "KIND": topic.kind,
            "PARTITIONS": topic.partitions,
            "ASKED-FOR": topic.asked_for,
        }
        for group_id, of_group in topics.items()
        for topic in of_group
    ]


def served(tasks: Iterable[Mapping[str, Any]], topics: Iterable[Topic]) -> tuple[str | None, str | None]:
    """Return the partitions of active tasks, and of standby and warm-up tasks, that a member with these tasks serves.

    They are as brokers report them to all members, such as `orders(0,2), customers(0)`; None if there are none.
    For each task the member serves the task's partition of each topic that the subtopology reads, if the topic has that
    partition (`EndpointToPartitionsManager`, Kafka 4.4.0).
    """
    by_subtopology: dict[str, list[Topic]] = {}
    for topic in topics:
        if topic.kind in _READ:
            by_subtopology.setdefault(topic.subtopology_id, []).append(topic)
    found: dict[bool, dict[str, set[int]]] = {True: {}, False: {}}
    for task in tasks:
        for topic in by_subtopology.get(task["subtopology_id"], ()) if task["current"] else ():
            if topic.partitions is None or task["partition"] < topic.partitions:
                found[task["role"] == ACTIVE].setdefault(topic.name, set()).add(task["partition"])
    return format_partitions(found[True]), format_partitions(found[False])


def format_partitions(partitions: Mapping[str, Iterable[int]]) -> str | None:
    """Return partitions by topic as text such as `orders(0,2), customers(0)`; None if there are none."""
    return (
        ", ".join(f"{topic}({','.join(map(str, sorted(ones)))})" for topic, ones in sorted(partitions.items())) or None
    )


def endpoint_rows(groups: Iterable[Mapping[str, Any]], topics: Mapping[str, Sequence[Topic]]) -> list[Row]:
    """Return a row for each member of these groups that has an endpoint, with the partitions that it serves."""
    return [
        {
            "GROUP": group["group_id"],
            "ENDPOINT": member["user_endpoint"],
            "MEMBER": member["member_id"],
            "ACTIVE-PARTITIONS": active,
            "STANDBY-PARTITIONS": standby,
        }
        for group in groups
        for tasks in [tasks_of_members(group)]
        for member in group["members"]
        if member["user_endpoint"]
        for active, standby in [served(tasks.get(member["member_id"], ()), topics[group["group_id"]])]
    ]


def tasks_of_members(group: Mapping[str, Any]) -> dict[str, list[Row]]:
    """Return the tasks of a row of `groups` by the id of their member."""
    found: dict[str, list[Row]] = {}
    for task in group["assignments"]:
        found.setdefault(task["member_id"], []).append(task)
    return found
