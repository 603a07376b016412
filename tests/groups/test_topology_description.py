"""Topology descriptions as text: compared with what Kafka's own `Topology#describe()` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from streaming_app.groups.topology_description import describe_topology
from tests.groups.java_topology import KAFKA_STREAMS, RECORDED, SEEDS, Fields, random_topology, recorded
from tests.long.hostile import STORED, effective_characters
from tests.support.ivy import resolve
from tests.support.kafka_oracle import Oracle

TOPOLOGIES = 30


def node(name: str, kind: int, *successors: str, **values: Any) -> Fields:
    empty = {"source_topics": [], "sink_topic": None, "stores": []}
    return {"name": name, "node_type": kind, "successors": sorted(successors), **empty, **values}


def description(*nodes: Fields, global_stores: list[Fields] | None = None) -> Fields:
    ordered = sorted(nodes, key=lambda one: str(one["name"]))
    return {
        "subtopologies": [{"subtopology_id": "0", "nodes": ordered}] if ordered else [],
        "global_stores": global_stores or [],
    }


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [node("a", 2, "a")],
        [node("a", 2, "b"), node("b", 2, "a")],
        [node("a", 2, "gone")],
        [node(str(n), 2, str(n + 1)) for n in range(3000)],
        [node(str(n), 2, *(str(n * 10 + m) for m in range(1, 9))) for n in range(30)],
        [node("a", 9)],
    ],
    ids=["empty", "itself", "cycle", "missing", "long", "tree", "kind"],
)
def test_a_description_that_no_topology_has_is_printed_all_the_same(nodes: list[Fields]) -> None:
    assert describe_topology(description(*nodes)).startswith("Topologies:\n ")


def test_names_that_clients_choose_cannot_add_a_line() -> None:
    names = {"source_topics": [STORED], "stores": [STORED], "sink_topic": STORED}
    nodes = [node(f"{kind}{STORED}", kind, **names) for kind in (1, 2, 3)]
    text = describe_topology(description(*nodes))
    assert effective_characters(text) == set()
    assert text.count("\n") == describe_topology(description(*(node(str(n), n) for n in (1, 2, 3)))).count("\n")


@pytest.mark.parametrize("line", RECORDED.read_text().splitlines(), ids=map(str, SEEDS))
def test_topologies_that_kafka_printed_are_printed_like_that(line: str) -> None:
    printed, sent = json.loads(line)
    assert describe_topology(sent) == printed


def test_a_subtopology_whose_id_is_no_number_comes_first() -> None:
    parts = [{"subtopology_id": one, "nodes": []} for one in ("4", "1", "x", "\u0663", "\u00b2")]
    lines = describe_topology({"subtopologies": parts, "global_stores": []}).splitlines()
    assert [line.split(": ")[1] for line in lines if ": " in line] == ["x", "\u0663", "\u00b2", "1", "4"]


@pytest.fixture(scope="module")
def oracles() -> Iterator[Oracle]:
    oracle = Oracle(resolve(KAFKA_STREAMS))
    yield oracle
    oracle.close()


def test_random_topologies_are_printed_as_kafka_prints_them(oracles: Oracle) -> None:
    random = Random(20261122)  # noqa: S311 - a fixed seed
    for _ in range(TOPOLOGIES):
        printed, wire = random_topology(oracles, random)
        assert describe_topology(wire) == printed


def test_what_is_recorded_is_what_kafka_prints(oracles: Oracle) -> None:
    assert RECORDED.read_text() == recorded(oracles)
