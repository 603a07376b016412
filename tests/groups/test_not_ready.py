"""Why groups are NotReady, rule by rule; `test_not_ready_live.py` compares the reasons with those of heartbeats."""

from typing import Any

import pytest

from streaming_app.groups.group import Group
from streaming_app.groups.not_ready import not_ready_reason
from tests.support.rows import subtopology_row


def group(**changed: Any) -> Group:
    parts = [subtopology_row(source_topics=["a", "b"])]
    return Group("g", **{"topology_epoch": 1, "metadata_hash": 5, "subtopologies": parts, **changed})


NOT_VALIDATED = "TOPICS_NOT_VALIDATED: Topics of topology epoch 1 are missing or wrongly partitioned"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"metadata_hash": 0}, "MISSING_SOURCE_TOPICS: Source topics a, b are missing."),
        ({}, f"{NOT_VALIDATED}; no epoch was validated."),
        ({"validated_topology_epoch": 0}, f"{NOT_VALIDATED}; epoch 0 was validated."),
        (  # a topology of patterns names no topic that could be missing
            {"metadata_hash": 0, "subtopologies": [subtopology_row(source_topic_regex=["a.*"])]},
            f"{NOT_VALIDATED}; no epoch was validated.",
        ),
        ({"topology_epoch": None}, "TOPICS_NOT_VALIDATED: The group has no topology."),
    ],
)
def test_without_metadata_the_reason_is_derived_from_the_log(changed: dict[str, Any], expected: str) -> None:
    assert not_ready_reason(group(**changed)) == expected


def test_with_metadata_a_group_that_is_not_ready_always_has_a_reason() -> None:
    valid = "The topics are valid by now; the broker has not checked them again."
    assert not_ready_reason(group(), {"a": 1, "b": 1}) == f"TOPICS_NOT_VALIDATED: {valid}"
    assert not_ready_reason(group(), {"a": 1}) == "MISSING_SOURCE_TOPICS: Source topics b are missing."
