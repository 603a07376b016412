"""The list of groups, from the view `group_overview`: what `list`, `status`, `demo` and the page select from it."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from streaming_app.errors import WarehouseError
from streaming_app.groups.state_rules import DEAD, STATES
from streaming_app.health.verdict import VERDICTS
from streaming_app.tables.definitions import overview
from streaming_app.tables.reader import Row, WarehouseReader, quote

STREAMS = "streams"
TYPES = {name.lower(): name for name in ("Streams", "Consumer", "Classic", "Share")}
"""The types as in the tables, and as `kafka-groups.sh --list` prints them."""
LIVING, OTHERS, DELETED = "streams", "others", "deleted"
"""The kinds of groups: streams groups, groups of other types, and streams groups that were deleted."""
_OF_CLASSIC = ("PreparingRebalance", "CompletingRebalance")
"""The states that only classic groups have."""
_TITLES = {
    "group_id": "GROUP",
    "group_type": "TYPE",
    "protocol_type": "PROTOCOL",
    "state": "STATE",
    "verdict": "HEALTH",
    "since": "SINCE",
    "pending_verdict": "PENDING",
    "pending_at": "PENDING-AT",
}
"""Column -> its title in `list`, in the order in which it is printed."""


def overview_sql(
    cluster: str,
    names: Collection[str],
    kinds: Collection[str] = (),
    among: Mapping[str, Collection[str]] = MappingProxyType({}),
    condition: str = "true",
) -> str:
    """Return the query of these columns of `group_overview`, which reads only the tables that these need.

    `among`: column -> the values of which groups have one; none: any. `condition` is about these columns and `state`.
    """
    some = {name: ", ".join(map(quote, values)) for name, values in among.items() if values}
    conditions = [f"cluster = {quote(cluster)}", condition, *(f"{name} IN ({few})" for name, few in some.items())]
    found = overview().select({"cluster", "state", *names, *some}, kinds)
    return f"SELECT {', '.join(names)} FROM ({found}) AS found WHERE {' AND '.join(conditions)}"  # noqa: S608 - quoted


def named(given: Iterable[str], valid: Iterable[str], what: str) -> list[str]:
    """Return those of `valid` that are named, in any letter case; `_` (as in NOT_READY) and blanks are accepted.

    Raises WarehouseError for another name; `what` is what they are names of.
    """
    names = {name.lower(): name for name in valid}
    found = []
    for text in given:
        name = names.get(text.replace("_", "").replace(" ", "").lower())
        if name is None:
            raise WarehouseError(f"No such {what}: {text}. Valid {what}s are: {', '.join(names.values())}")
        found.append(name)
    return found


def list_groups(
    reader: WarehouseReader,
    cluster: str,
    states: Iterable[str] | None = None,
    verdicts: Iterable[str] | None = None,
    types: Iterable[str] | None = None,
) -> list[Row]:
    """Return the rows of `list`: groups that are not deleted, by default those of Kafka Streams with their verdicts.

    `types` (`all`: every type) adds TYPE and PROTOCOL, `states` adds STATE, and `verdicts` since when, and what is
    pending; if these name any, only groups with one of them are listed. With `states` alone only streams groups are
    listed, as by kafka-streams-groups.sh. The deleted ones are Dead; one that was deleted while it was Down has a
    verdict until its alert ends. STATE is null if the log does not prove it and the brokers
    were not asked; the job asks them for classic groups with members. Raises WarehouseError for an unknown name.
    """
    of_types = named([STREAMS] if types is None else types, ("all", *TYPES), "type")
    in_states = named(states or (), (*STATES, *(_OF_CLASSIC if types is not None else ())), "state")
    among = {"state": in_states, "verdict": named(verdicts or (), VERDICTS, "verdict")}
    names = ["group_id", *(("group_type", "protocol_type") if types is not None else ())]
    names += ["state"] if states is not None else []
    names += ["verdict"] if types is None or verdicts is not None else []
    names += ["since", "pending_verdict", "pending_at"] if verdicts is not None else []
    kinds, condition = [], "true"
    if {"all", STREAMS}.intersection(of_types):
        kinds.append(LIVING)
        if DEAD in in_states:
            kinds.append(DELETED)
        elif verdicts is not None and not in_states:
            kinds.append(DELETED)
            condition = f"(state <> '{DEAD}' OR verdict IS NOT NULL)"
    has_classic = types is None and (states is None or verdicts is not None)
    if has_classic or {*of_types} - {STREAMS}:
        kinds.append(OTHERS)
    if has_classic:
        condition += " AND kafka_streams"
    elif OTHERS in kinds:
        among["group_type"] = [] if "all" in of_types else of_types
    titled = ", ".join(f'{name} AS "{_TITLES[name]}"' for name in names)
    sql = overview_sql(cluster, [*names, "kafka_streams"], kinds, among, condition)
    rows = reader.rows(f"SELECT {titled} FROM ({sql}) AS listed ORDER BY group_id")  # noqa: S608 - quoted
    for row in rows if types is not None else ():
        row["TYPE"] = TYPES[row["TYPE"]]
    return rows


def count_groups(reader: WarehouseReader, cluster: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the numbers of streams groups by state, the most frequent first, and by verdict."""
    of_each = overview_sql(cluster, ["state", "verdict"], [LIVING, DELETED])
    rows = reader.rows(f"SELECT state, verdict, count(*) AS n FROM ({of_each}) AS each GROUP BY state, verdict")  # noqa: S608 - quoted
    states, verdicts = Counter[str](), Counter[str | None]()
    for row in rows:
        states[row["state"]] += row["n"]
        verdicts[row["verdict"]] += row["n"]
    by_number = sorted(states.items(), key=lambda one: (-one[1], one[0]))
    return dict(by_number), {name: verdicts[name] for name in VERDICTS if name in verdicts}
