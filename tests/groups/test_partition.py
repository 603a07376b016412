import pytest

from streaming_app.groups.partition import hash_code, partition_of


@pytest.mark.parametrize(
    ("text", "expected"),  # results of Java's String.hashCode
    [
        ("orders-aggregator", -1109757007),
        ("polygenelubricants", -(1 << 31)),
        ("ünïcode", -609351766),
        ("🎉", 1773261),
    ],
)
def test_the_hash_equals_that_of_a_java_string(text: str, expected: int) -> None:
    assert hash_code(text) == expected


def test_the_hash_without_an_absolute_value_maps_to_partition_0() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("orders-aggregator", 50) == 1109757007 % 50
