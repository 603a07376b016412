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
