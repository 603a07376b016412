"""The rows of `describe --stores`: the stores of applications, and which instance has which partition of them.

A stored description of the group's topology names its stores and their subtopologies. Without one, a store is derived
from its changelog, `<group>-<store>-changelog` (`ProcessorStateManager.storeChangelogTopic`): stores without one are
not known. A task has all stores of its subtopology. For a group with the classic protocol the job asks the brokers for
topics with such names. Which subtopology has a store of it is known if it is the only one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from streaming_app.errors import WarehouseError
from streaming_app.groups.group import CLASSIC
from streaming_app.queries.copies import read_reports
from streaming_app.queries.topics import internal_partitions
from streaming_app.tables.reader import Row, WarehouseReader, of_groups
from streaming_app.text import count, first_of

DESCRIPTION, CHANGELOG = "description", "changelog"
"""Where a store is known from."""
_SUFFIX = "-changelog"
_NAMED, _GROUPS = 10, 3  # stores and groups in a line
_COPY = ("partition", "role", "client_host", "process_id", "member_id", "lag", "ready_at")


def read_stores(warehouse: WarehouseReader, cluster: str, groups: Sequence[Row], name: str = "") -> list[Row]:
    """Return what `describe --stores --json` prints of these rows of `groups`: their stores, by group and name.

    With a `name` only stores with this name. `subtopology_id` and `copies` are None where they are not known; a global
    store has neither: each instance has all of it. `changelog` is None if the store has none. `changelog_end_offset` is
    known if the task has no other changelog, and a copy told it. Raises WarehouseError if no store has this name.
    """
    ids = [group["group_id"] for group in groups]
    where = of_groups(cluster, ids)
    described: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in warehouse.rows(
        "SELECT group_id, topology_epoch, node, subtopology_id FROM description_nodes "  # noqa: S608 - quoted
        f"WHERE {where} AND kind = 'store' AND is_newest"
    ):
        described[row["group_id"], row["topology_epoch"]].append(row)
    partitions = internal_partitions(warehouse, where)
    found = [
        _with_copies(store, group, report["copies"], partitions[group["group_id"]])
        for group, report in zip(groups, read_reports(warehouse, cluster, groups), strict=True)
        for store in _stores(
            group, described[group["group_id"], group["topology_epoch"]], partitions[group["group_id"]]
        )
    ]
    if name and name not in {one["store"] for one in found}:
        known = first_of(sorted({one["store"] for one in found}), _NAMED) or "none is known"
        raise WarehouseError(f"No store {name!r} in {first_of(ids, _NAMED)}: {known}")
    return [one for one in found if name in {"", one["store"]}]


def _stores(group: Row, described: Collection[Row], topics: Collection[str]) -> Iterator[Row]:
    parts = group["subtopologies"] or []
    if group.get("protocol") == CLASSIC:
        only = parts[0]["subtopology_id"] if len(parts) == 1 else None
        changelogs = {topic: only for topic in topics if topic.endswith(_SUFFIX)}
    else:
        changelogs = {
            topic["name"]: part["subtopology_id"] for part in parts for topic in part["state_changelog_topics"] or ()
        }
    start = f"{group['group_id']}-"
    by_store = {topic.removeprefix(start).removesuffix(_SUFFIX): topic for topic in changelogs}
    nodes = {row["node"]: row["subtopology_id"] for row in described}
    for store in sorted({*by_store, *nodes}):
        topic = by_store.get(store)
        yield {
            "group_id": group["group_id"],
            "store": store,
            "known_from": DESCRIPTION if store in nodes else CHANGELOG,
            "is_global": store in nodes and nodes[store] is None,
            "subtopology_id": nodes.get(store) or (topic and changelogs[topic]),
            "changelog": topic,
        }


def _with_copies(store: Row, group: Row, copies: Iterable[Row], partitions: Mapping[str, int]) -> Row:
    """Return the store with its copies. Clients report one end for all changelogs of a task, and none if it runs."""
    own, changelog = store["subtopology_id"], store["changelog"]
    endpoints = {member["member_id"]: member["user_endpoint"] for member in group["members"] or ()}
    held, ends = [copy for copy in copies if copy["subtopology_id"] == own], dict[int, int]()
    changelogs = [
        part["state_changelog_topics"] for part in group["subtopologies"] or () if part["subtopology_id"] == own
    ]
    for copy in held if changelog and changelogs and len(changelogs[0] or ()) == 1 else ():
        ends[copy["partition"]] = max(ends.get(copy["partition"], 0), copy["task_end_offset"] or 0)
    found = [
        {name: copy[name] for name in _COPY}
        | {
            "user_endpoint": endpoints.get(copy["member_id"]),
            "changelog_end_offset": ends.get(copy["partition"]) or None,
        }
        for copy in held
    ]
    return {**store, "partitions": partitions.get(changelog or ""), "copies": None if own is None else found}


def store_rows(stores: Iterable[Row]) -> list[Row]:
    """Return a row for each copy of each partition of a store; one row for a store whose copies are not known."""
    return [
        {
            "GROUP": store["group_id"],
            "STORE": store["store"],
            "SUBTOPOLOGY": store["subtopology_id"],
            "PARTITION": copy.get("partition"),
            "ROLE": "GLOBAL" if store["is_global"] else str(copy["role"]).upper() if copy else None,
            "ENDPOINT": copy.get("user_endpoint"),
            "HOST": copy.get("client_host"),
            "PROCESS": copy.get("process_id"),
            "LAG": copy.get("lag"),
            "READY": copy.get("ready_at"),
            "CHANGELOG": store["changelog"],
            "END": copy.get("changelog_end_offset"),
        }
        for store in stores
        for copy in store["copies"] or [dict[str, Any]()]
    ]


def notes(groups: Iterable[Row], stores: Collection[Row]) -> Iterator[str]:
    """Yield what these stores do not tell, a line each."""
    known = {name: [one for one in stores if one["group_id"] == name] for name in (row["group_id"] for row in groups)}
    derived = [name for name, own in known.items() if not own or any(one["known_from"] == CHANGELOG for one in own)]
    if derived:
        yield (
            f"{_few(derived)}: without a description of the topology, stores are derived from the names of "
            "changelogs; those without one, and global stores, are not known."
        )
    if placeless := [
        name for name, own in known.items() if any(one["copies"] is None and not one["is_global"] for one in own)
    ]:
        yield f"{_few(placeless)}: the log does not say which subtopology has which store."


def _few(group_ids: Sequence[str]) -> str:
    return ", ".join(group_ids) if len(group_ids) <= _GROUPS else count(len(group_ids), "group")
