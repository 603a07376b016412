"""A line that is reported once."""

from streaming_app.report import ReportOnce


def test_a_line_is_not_repeated_until_another_one_came_or_it_is_cleared_also_if_it_differs_in_a_duration() -> None:
    lines: list[str] = []
    report = ReportOnce(lines.append)
    for line in (
        "GET x in 1.25ms: 503",
        "GET x in 17ms: 503",
        "GET x in 2 s: 503",
        "GET x in 2 s: 500",
        "7 groups",
        "8 groups",
    ):
        report(line)
    assert lines == ["GET x in 1.25ms: 503", "GET x in 2 s: 500", "7 groups", "8 groups"]
    assert report.clear()
    assert not report.clear()
    report("8 groups")
    assert lines[-2:] == ["8 groups", "8 groups"]
