import pytest

from streaming_app.core.partition import hash_code, partition_of


@pytest.mark.parametrize(
    ("text", "expected"),  # what Java says
    [
        ("", 0),
        ("a", 97),
        ("orders-aggregator", -1109757007),
        ("polygenelubricants", -(1 << 31)),
        ("ünïcode", -609351766),
        ("🎉", 1773261),
    ],
)
def test_the_hash_is_that_of_javas_strings(text: str, expected: int) -> None:
    assert hash_code(text) == expected


def test_the_one_hash_without_an_absolute_value_goes_to_partition_0() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("orders-aggregator", 50) == 1109757007 % 50
