"""The order of the tests, and which of them share a process: see `tests/order.py`."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.order import add_groups, check_groups, order_items


class Item(SimpleNamespace):
    """What `order` asks of a test of pytest."""

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)

    def iter_markers(self) -> Iterable[pytest.Mark]:
        return self.marks

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)


def item(nodeid: str, *fixtures: str, marks: tuple[str, ...] = ()) -> Any:
    return Item(nodeid=nodeid, fixturenames=fixtures, marks=[getattr(pytest.mark, name).mark for name in marks])


def ordered(*items: Any) -> list[tuple[str, str]]:
    """Return the tests in their order, each with its group."""
    tests = list(items)
    add_groups(tests)
    order_items(tests)
    return [(one.nodeid.rpartition("/")[2], one.get_closest_marker("xdist_group").args[0]) for one in tests]


def test_the_tests_with_a_session_come_first_then_those_with_three_brokers_and_last_what_starts_nothing() -> None:
    assert ordered(
        item("tests/a/test_fast.py::one"),
        item("tests/a/test_mixed.py::plain"),
        item("tests/a/test_mixed.py::live", "spark", marks=("spark",)),
        item("tests/b/test_broker.py::one", marks=("broker",)),
        item("tests/b/test_live.py::one", "spark", marks=("spark",)),
        item("tests/b/test_broker.py::two"),
        item("tests/stream/test_live.py::one", "spark", marks=("spark",)),
        item("tests/histories/test_histories.py::one", marks=("slow",)),
        item("tests/c/test_cluster.py::one", "three_brokers", marks=("broker",)),
        item("tests/a/test_cluster.py::one", "three_brokers", marks=("broker",)),
        item("tests/stream/test_cluster.py::one", "spark", "three_brokers", marks=("broker",)),
    ) == [
        ("test_mixed.py::live", "spark"),
        ("test_live.py::one", "spark"),
        ("test_live.py::one", "spark-stream"),
        ("test_cluster.py::one", "spark-stream"),
        ("test_cluster.py::one", "three_brokers"),
        ("test_cluster.py::one", "three_brokers"),
        ("test_broker.py::one", "tests/b/test_broker"),
        ("test_broker.py::two", "tests/b/test_broker"),
        ("test_histories.py::one", "tests/histories/test_histories"),
        ("test_fast.py::one", "tests/a/test_fast"),
        ("test_mixed.py::plain", "tests/a/test_mixed"),
    ]


def test_a_folder_that_shares_a_broker_is_one_group_with_or_without_a_session() -> None:
    first, second = "tests/security/test_a.py::one", "tests/security/test_b.py::two"
    assert {group for _, group in ordered(item(first), item(second, marks=("broker",)))} == {"security"}
    assert {group for _, group in ordered(item(first), item(second, "spark", marks=("spark",)))} == {"spark"}


def test_a_run_whose_groups_are_not_passed_on_is_refused() -> None:
    tests = [item("tests/a/test_x.py::one"), item("tests/a/test_x.py::two")]
    add_groups(tests)
    with pytest.raises(pytest.UsageError, match="does not pass on the groups"):
        check_groups(tests)
    for one in tests:
        one.nodeid += "@tests/a/test_x"
    check_groups(tests)


def test_the_names_of_parametrized_tests_are_not_part_of_their_group() -> None:
    assert [group for _, group in ordered(item("tests/a/test_x.py::one[security/a.b::c]"))] == ["tests/a/test_x"]
