"""The content of topologies: which are the same, what changed between two, and the event when a group has another."""

import random
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.groups.topology import changes_between, is_internal_topic, topology_hash


def subtopology(subtopology_id: str = "0", **columns: Any) -> dict[str, Any]:
    """Return a subtopology as in the column of `groups`."""
    empty = ("source_topics", "source_topic_regex", "repartition_sink_topics", "repartition_source_topics")
    lists = dict.fromkeys((*empty, "state_changelog_topics", "copartition_groups"), ())
    return {"topology_epoch": 0, "subtopology_id": subtopology_id, **lists, **columns}


def internal(name: str, partitions: int = 0, **configs: str) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": list(configs.items())}


WHOLE = [
    subtopology(
        "0",
        source_topics=["orders", "payments"],
        source_topic_regex=["eu-.*"],
        repartition_sink_topics=["app-by-customer-repartition"],
        state_changelog_topics=[internal("app-seen-changelog", 6, retention="1", cleanup="compact")],
        copartition_groups=[["orders", "payments"], ["eu-.*"]],
    ),
    subtopology("1", repartition_source_topics=[internal("app-by-customer-repartition", 12)]),
]


def changes(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(part for part in change if part is not None) for change in changes_between(before, after)]


def test_the_hash_stays_what_earlier_releases_stored() -> None:
    assert topology_hash(WHOLE) == "c0f1907c77b2638d"
    assert topology_hash([]) == "4f53cda18c2baa0c"


def test_what_was_added_and_taken_away_is_listed() -> None:
    after = deepcopy(WHOLE)
    after[0]["source_topics"] = ["orders", "refunds"]
    after[0]["copartition_groups"] = [["orders", "refunds"], ["eu-.*"]]
    after[0]["state_changelog_topics"] = [internal("app-totals-changelog", 6)]
    after[1]["repartition_source_topics"] = [internal("app-by-customer-repartition", 24, retention="2")]
    after.append(subtopology("2", source_topic_regex=["us-.*"]))
    assert changes(WHOLE, after) == [
        ("added", "subtopology", "2", "2"),
        ("removed", "source topic", "0", "payments"),
        ("added", "source topic", "0", "refunds"),
        ("added", "source topic regex", "2", "us-.*"),
        ("changed", "repartition topic", "1", "app-by-customer-repartition", "config retention", "2"),
        ("changed", "repartition topic", "1", "app-by-customer-repartition", "partitions", "12", "24"),
        ("removed", "changelog topic", "0", "app-seen-changelog"),
        ("added", "changelog topic", "0", "app-totals-changelog"),
        ("removed", "copartition group", "0", "orders, payments"),
        ("added", "copartition group", "0", "orders, refunds"),
    ]


def test_a_topic_that_is_in_another_subtopology_now_has_moved_and_was_neither_added_nor_removed() -> None:
    before = [subtopology("0", source_topics=["a"]), subtopology("1", source_topics=["b"])]
    after = [subtopology("0", source_topics=["new"]), subtopology("1", source_topics=["a"])]
    after.append(subtopology("2", source_topics=["b"]))
    assert changes(before, after) == [
        ("added", "subtopology", "2", "2"),
        ("changed", "source topic", "1", "a", "subtopology", "0", "1"),
        ("changed", "source topic", "2", "b", "subtopology", "1", "2"),
        ("added", "source topic", "0", "new"),
    ]


_NAMES = st.sampled_from(["a", "b", "a, b", "", "\ud800", "'x'"])
_INTERNAL = st.builds(
    lambda name, partitions, configs: internal(name, partitions, **configs),
    _NAMES,
    st.integers(0, 2),
    st.dictionaries(st.sampled_from(["k", "l"]), _NAMES, max_size=2),
)
_TOPOLOGIES = st.lists(
    st.builds(
        subtopology,
        _NAMES,
        source_topics=st.lists(_NAMES, max_size=2),
        repartition_sink_topics=st.lists(_NAMES, max_size=1),
        repartition_source_topics=st.lists(_INTERNAL, max_size=2),
        state_changelog_topics=st.lists(_INTERNAL, max_size=2),
        copartition_groups=st.lists(st.lists(_NAMES, max_size=2), max_size=2),
    ),
    max_size=2,
)


@given(_TOPOLOGIES, _TOPOLOGIES, st.randoms())
def test_there_is_no_change_between_two_topologies_if_and_only_if_their_hashes_are_equal(
    one: list[dict[str, Any]], other: list[dict[str, Any]], shuffler: random.Random
) -> None:
    assert (changes(one, other) == []) == (topology_hash(one) == topology_hash(other))
    shuffled = deepcopy(one)
    shuffler.shuffle(shuffled)
    assert changes(one, shuffled) == []


@pytest.mark.parametrize(
    ("name", "is_internal"),
    [
        ("app-counts-changelog", True),
        ("app-by-key-repartition", True),
        ("app-orders", False),
        ("other-counts-changelog", False),
        ("application-counts-changelog", False),
    ],
)
def test_a_topic_of_the_group_is_internal_by_both_ends_of_its_name(name: str, *, is_internal: bool) -> None:
    assert is_internal_topic(name, "app") is is_internal
