import pytest

from streaming_app.checks.brokers import judge_clock
from streaming_app.checks.result import OK, SKIPPED, WARNING


@pytest.mark.parametrize(
    ("first", "last", "status", "text"),
    [
        (1003, 1004, OK, ""),
        (995, 996, OK, ""),
        (None, 1001, OK, "agrees"),
        (1059, 1060, WARNING, " s ahead"),
        (939, 940, WARNING, "60 s behind this machine's"),
        (5000, 5000, WARNING, " s ahead"),
        (400, 400, OK, "no record for 601 s"),
        (None, None, SKIPPED, ""),
    ],
    ids=["a little ahead", "a little behind", "first record", "ahead", "behind", "quiet and ahead", "quiet", "none"],
)
def test_a_clock_is_judged_by_the_newest_record(
    first: float | None, last: float | None, status: str, text: str
) -> None:
    result = judge_clock(first, 1000.0, last, 1001.0)
    assert result.status == status
    assert text in result.text
