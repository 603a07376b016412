"""What the views make of rows: pure functions, without tables or a server."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import URL, QueryParams

from streaming_app.health.verdict import BEHIND, DOWN, LOSING, OFF, OK, RESTORING, STALLED
from streaming_app.queries.lag import Lag
from streaming_app.web.graph import Graph
from streaming_app.web.group_page import hosts_of
from streaming_app.web.overview import Query, overview
from streaming_app.web.page_snapshot import NOTHING_KNOWN, all_groups
from streaming_app.web.task_matrix import task_matrix
from streaming_app.web.topology_graph import TopologyGraph
from streaming_app.web.tracks import Scale, event_tracks
from streaming_app.web.window import Window, parse_window
from streaming_app.web.words import group_key, group_query, short_name
from tests.support.odd_group_ids import ODD
from tests.support.sample_groups import NOW, group, member, rich_group, task

HOUR = Window(NOW - timedelta(hours=1), NOW, "1h")
Row = dict[str, Any]


def summary(group_id: str, state: str | None = "Stable", **columns: Any) -> Row:
    of_type = columns.get("group_type", "streams")
    values: Row = {"group_type": "streams", "state": state, "description_status": "CURRENT", "member_count": 1}
    values |= {"tasks": 1, "moving": 0, "verdict": "Unknown" if of_type == "streams" else None}
    return {**NOTHING_KNOWN, **values, "group_id": group_id, **columns}


def judged(group_id: str, verdict: str, severity: str | None = None, **columns: Any) -> Row:
    return summary(group_id, verdict=verdict, since=NOW, severity=severity, **columns)


def ids(view: Row) -> list[str]:
    return [one["group_id"] for one in view["rows"]]


def test_trouble_comes_first_then_lag_then_the_name() -> None:
    groups = [
        judged("ok-b", OK, lag=5, lag_seconds=1.0),
        judged("ok-a", OK),
        summary("unknown"),
        summary("consumer", group_type="consumer"),
        judged("late", OK, lag=5, lag_seconds=90.0),
        judged("off", OFF, state="Empty"),
        judged("restoring", RESTORING),
        judged("down", DOWN, "critical", state="NotReady"),
        judged("losing", LOSING, "critical"),
        judged("behind", BEHIND, "warning"),
        judged("stalled in part", STALLED, "warning"),
        summary("warned", alerts=1, alert_severity="warning"),
        summary("critical", alerts=2, alert_severity="critical"),
        summary("deleted", "Dead"),
    ]
    shown = ids(overview(groups, Query()))
    assert shown[:6] == ["losing", "down", "critical", "stalled in part", "behind", "warned"]
    assert shown[6:] == ["restoring", "unknown", "late", "ok-b", "ok-a", "consumer", "off"]


def test_pages_of_the_overview_hold_every_group_once() -> None:
    groups = [summary(f"g{number:03}") for number in range(25)]
    pages = [overview(groups, Query(page=number), page_size=10) for number in (1, 2, 3)]
    assert [one for page in pages for one in ids(page)] == [one["group_id"] for one in groups]
    assert [page["first"] for page in pages] == [1, 11, 21]
    assert ids(overview(groups, Query(page=99), page_size=10)) == ids(pages[2])
    assert ids(overview([], Query(page=2))) == []


def test_the_groups_of_a_cause_are_one_entry_where_the_worst_of_them_is() -> None:
    calm = [summary(f"calm-{number:02}", lag=number) for number in range(30)]
    many = [judged(f"a-{n:02}", DOWN, "critical", cause="missing_topic:a", lag=n or None) for n in range(40)]
    other = judged("b", LOSING, "critical", cause="missing_topic:b")
    every = [*calm, *many, other]
    view = overview(every, Query())
    first = [(one["cause"], one["groups"][0]["group_id"], one["total"]) for one in view["entries"][:3]]
    assert first == [(None, "b", 1), ("missing_topic:a", "a-39", 40), (None, "calm-29", 1)]
    folded = view["entries"][1]
    assert (len(folded["groups"]), folded["lag"], folded["member_count"]) == (30, 780, 40)
    assert (folded["unknown_partitions"], folded["is_lower_bound"]) == (1, True)
    assert (view["matching"], view["of_entries"], view["pages"]) == (71, 32, 1)

    def entries(**query: Any) -> list[Row]:
        return list(overview(every, Query(**query))["entries"])

    assert [one["groups"][0]["group_id"] for one in entries(q="a-07")] == ["a-07"]
    assert len(entries(cause="missing_topic:a")) == 40
    assert all(one["total"] == 1 for one in entries(sort="name"))
    assert [one["total"] for one in entries(health=frozenset({DOWN}))] == [40]


def test_a_url_of_a_query_gives_the_same_query() -> None:
    sets = {"state": frozenset({"Empty", "Dead"}), "type": frozenset({"share"}), "health": frozenset({"Down", "Off"})}
    texts = {"q": "a&b=c #", "label": "team:a b", "description": "STALE", "show": "moving", "cluster": "other cluster"}
    query = Query(**sets, **texts, sort="lag", page=3)
    assert Query.parse(QueryParams(URL(query.url(page=3)).query)) == query
    assert Query.parse(QueryParams("state=x&sort=y&show=z&page=-1&health=w")) == Query()
    assert Query().url() == "./"
    assert "page" not in query.url(q="x")


def test_the_matrix_shows_what_each_process_has_takes_and_gives() -> None:
    members = [member(0, NOW), member(1, NOW), member(2, NOW)]
    ids = [one["member_id"] for one in members]
    assignments = [
        task(ids[0], "0_0"),
        task(ids[1], "0_1", target=False, revoke=True),
        task(ids[2], "0_1", current=False),
        task(ids[2], "10_0"),
        task(ids[0], "2_0", "standby"),
        task("member that left", "2_0", "warmup"),
    ]
    matrix = task_matrix(members, assignments, {"10_0": Lag(1_000, unknown_partitions=1)})
    assert matrix["columns"] == [("0", 0), ("0", 1), ("2", 0), ("10", 0)]
    assert matrix["subtopologies"] == [("0", 2), ("2", 1), ("10", 1)]
    by_host = {process["host"]: process for process in matrix["processes"]}
    first, second = by_host["10.4.0.11"], by_host["10.4.0.12"]
    assert (first["members"], first["active"], first["standby"]) == (2, 1, 1)  # without one that it gives
    assert [cell["movement"] for cell in first["cells"]["0", 1]] == ["gives"]
    assert [cell["movement"] for cell in second["cells"]["0", 1]] == ["takes"]
    (late,) = second["cells"]["10", 0]
    assert (late["lag_level"], late["text"][-8:]) == (4, " ≥ 1,000")
    assert matrix["unowned"] == ["0_1", "2_0"]


def test_what_is_before_the_events_that_were_read_is_not_drawn() -> None:
    joined = {"at": NOW - timedelta(minutes=30), "kind": "member_joined", "old": None, "new": None, "cause": None}
    members, *_ = event_tracks(Scale(HOUR.begin, HOUR.end), [joined], 1, known_from=joined["at"])
    assert [(one.text, one.x, one.width) for one in members.shapes] == [
        ("1 member", 500, 500),
        ("member joined", 500, 0),
    ]


@pytest.mark.parametrize(
    ("parameters", "begin", "end", "at"),
    [
        ({"range": "6h"}, 360, 0, None),
        ({"from": "2026-11-22T11:00Z", "to": "2026-11-22T11:30Z"}, 60, 30, None),
        ({"at": "10m", "range": "1h"}, 60, 0, 10),
        ({"at": "2026-11-22 09:00:00", "range": "1h"}, 210, 150, 180),
        ({"at": "2026-11-22T12:10Z"}, 20, -40, -10),
        ({"at": "nonsense", "from": "x" * 9_999, "to": "9999999999h", "range": "1h"}, 60, 0, None),
        ({"at": "0001-01-01T00:00+14:00", "range": "1h"}, 60, 0, None),
    ],
)
def test_the_window_of_a_url_contains_its_instant(
    parameters: dict[str, str], begin: float, end: float, at: float | None
) -> None:
    window = parse_window(parameters, group("g", "Stable", NOW, 15), NOW)
    assert ((NOW - window.begin).total_seconds() / 60, (NOW - window.end).total_seconds() / 60) == (begin, end)
    assert window.at == (None if at is None else NOW - timedelta(minutes=at))
    assert bool(window.problem) == ("nonsense" in parameters.get("at", "") or "0001" in parameters.get("at", ""))


def test_all_of_an_old_group_begins_with_the_oldest_time_that_is_known() -> None:
    """The log does not have its creation any more. "All" was the last minute."""
    old = {"first_seen_at": None, "updated_at": NOW, "topology_epochs": [{"first_seen_at": NOW - timedelta(days=90)}]}
    window = parse_window({"range": "all"}, {**group("g", "Stable", NOW, 15), **old}, NOW)
    assert window.begin < NOW - timedelta(days=90)


def test_groups_are_filtered_by_type_and_label() -> None:
    groups = [
        summary("a", labels=(("team", "x"),)),
        summary("b", None, group_type="classic"),
        summary("c", "Empty", group_type="share", labels=(("team", "x"), ("team", "y"))),
        summary("d", "Dead"),
    ]

    def names(**query: Any) -> list[str]:
        return ids(overview(groups, Query(**query)))

    assert names() == ["a", "b", "c"]
    assert names(type=frozenset({"classic", "share"})) == ["b", "c"]
    assert names(state=frozenset({"none"})) == ["b"]
    assert names(label="team:x") == ["a", "c"]
    assert names(label="team:z") == []
    view = overview(groups, Query(type=frozenset({"share"})))
    assert view["by_type"] == {"streams": 1, "classic": 1, "share": 1}
    assert view["by_state"] == {"Empty": 1}
    assert view["labels"] == ["team:x", "team:y"]
    assert overview(groups[:1], Query())["by_type"] == {}


def test_a_group_that_is_of_another_type_now_is_one_group() -> None:
    streams = [summary("a"), summary("b", "Dead"), summary("c", "Dead"), summary("d", "Dead")]
    others = [summary(name, None, group_type="consumer") for name in ("a", "b", "c", "e")]
    found = all_groups({one["group_id"]: one for one in streams}, others)
    types = {group_id: one["group_type"] for group_id, one in found.items()}
    assert types == {"a": "streams", "b": "consumer", "c": "consumer", "d": "streams", "e": "consumer"}


def test_the_map_connects_subtopologies_by_their_topics() -> None:
    row = rich_group(NOW)
    graph = TopologyGraph(row["group_id"], row["subtopologies"], hosts_of(row), {}).map()
    title = {node.id: node.title for node in graph.nodes}
    edges = {(title[start], title[end], kind) for start, end, kind, *_ in graph.edges}
    assert {
        ("orders", "Subtopology 0", "flow"),
        ("Subtopology 0", "…by-customer-repartition", "flow"),
        ("…by-customer-repartition", "Subtopology 1", "flow"),
        ("Subtopology 1", "…customers-changelog", "state"),
        ("audit-.*", "Subtopology 3", "flow"),
    } <= edges
    box = next(node for node in graph.nodes if node.title == "Subtopology 1")
    assert box.lines == ["3 active · 4 copies", "1 without an active member"]
    assert box.tone == "warning"


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_every_name_is_short_visible_and_apart_from_others(name: str) -> None:
    shown = short_name(name)
    assert 0 < len(shown) < 150
    assert shown.isprintable()
    others = {short_name(other) for other in ODD.values() if other != name}
    assert shown not in others
    assert len(group_query(name)) < 5_000
    assert len(group_key(name)) == 32


@pytest.mark.parametrize(
    ("lag", "text"),
    [
        (Lag(9, 70.0), "9 · 1 min 10 s"),
        (Lag(9, 70.0, is_lower_bound=True), "9 · ≥ 1 min 10 s"),  # it is known how much waits, but not for how long
        (Lag(9, 70.0, is_lower_bound=True, unknown_partitions=1), "≥ 9 · ≥ 1 min 10 s"),
        (Lag(0, 0.0, is_lower_bound=True, unknown_partitions=1), "not known"),
        (Lag(0, 0.0), "0"),
        (Lag(), "not known"),
    ],
)
def test_a_lag_says_which_of_its_numbers_are_lower_bounds(lag: Lag, text: str) -> None:
    assert lag.text == text


@given(st.sets(st.integers(0, 9)), st.lists(st.tuples(st.integers(0, 79), st.integers(0, 79)), max_size=200))
def test_a_folded_picture_has_each_node_once_and_each_edge_between_what_is_drawn(
    opened: set[int], edges: list[tuple[int, int]]
) -> None:
    graph = Graph("map")
    boxes = [graph.add_box(str(number), "b") for number in range(10)]
    nodes = [graph.add("topic", f"t{n}", "t", box=boxes[n % 10].id if n % 7 else None) for n in range(80)]
    for start, end in edges:
        if start != end:
            graph.connect(nodes[start], nodes[end])
    folded = graph.folded(lambda name: int(name) in opened)
    shown = [name for node in folded.nodes for name in (node.holds if node.kind == "folded" else [node.name])]
    assert sorted(shown) == sorted(node.name for node in nodes)
    assert [node.id for node in folded.nodes] == [f"n{number}" for number in range(len(folded.nodes))]
    place = {name: node.id for node in folded.nodes for name in (node.holds if node.kind == "folded" else [node.name])}
    expected = {(place[f"t{start}"], place[f"t{end}"]) for start, end in edges if start != end}
    assert sorted((one.start, one.end) for one in folded.edges) == sorted(one for one in expected if one[0] != one[1])
