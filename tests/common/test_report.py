"""A line that is reported once."""

from __future__ import annotations

from streaming_app.report import ReportOnce


def test_a_line_is_not_repeated_until_another_one_came_or_it_is_cleared() -> None:
    lines: list[str] = []
    report = ReportOnce(lines.append)
    for line in ("a", "a", "b", "a"):
        report(line)
    assert lines == ["a", "b", "a"]
    assert report.clear()
    assert not report.clear()
    report("a")
    assert lines == ["a", "b", "a", "a"]


def test_with_a_longer_memory_lines_that_take_turns_are_not_repeated_either() -> None:
    lines: list[str] = []
    report = ReportOnce(lines.append, memory=2)
    for line in ("a", "b", "a", "b", "c", "b", "a"):
        report(line)
    assert lines == ["a", "b", "c", "a"]


def test_lines_of_one_key_count_as_the_same() -> None:
    lines: list[str] = []
    report = ReportOnce(lines.append)
    report("3 topics", key="denied")
    report("4 topics", key="denied")
    report("all is known", key="nothing")
    assert lines == ["3 topics", "all is known"]
