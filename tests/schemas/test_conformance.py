"""The definitions against the message schemas in Kafka's jars. A missing jar is an error, never a skip.

KAFKA_RELEASES lists further releases ("4.5.0"): the test fails with what they add, line by line.
"""

import os
from pathlib import Path

import pytest

from tests.support.conformance import describe_definitions, describe_jar, differences
from tests.support.ivy import resolve

pytestmark = pytest.mark.java  # jars
RELEASES = ["4.0.1", "4.1.2", "4.2.1", "4.3.1", "4.4.0"]


def jar_of(release: str) -> Path:
    jars = resolve(f"org.apache.kafka:kafka-group-coordinator:{release}")
    return next(jar for jar in jars if jar.name == f"kafka-group-coordinator-{release}.jar")


@pytest.mark.parametrize("release", RELEASES + os.environ.get("KAFKA_RELEASES", "").split())
def test_the_definitions_match_the_schemas_in_the_jar(release: str) -> None:
    lines = differences(jar_of(release), release)

    assert not lines, "\n".join(["", *lines])


@pytest.mark.parametrize(("release", "fields"), [("4.0.1", 80), ("4.1.2", 160), ("4.4.0", 170)])
def test_all_fields_of_a_release_are_compared(release: str, fields: int) -> None:
    assert len(describe_jar(jar_of(release))) == len(describe_definitions(release)) > fields


def test_what_a_release_adds_is_reported_field_by_field() -> None:
    lines = differences(jar_of("4.4.0"), "4.3.1")

    assert [line.split(":")[0] for line in lines] == [
        "17 StreamsGroupMetadata value.FailedDescriptionTopologyEpoch",
        "17 StreamsGroupMetadata value.StoredDescriptionTopologyEpoch",
    ]
    assert "int32, versions [0], tag 3, default -1, nullable False, ignorable False" in lines[0]
    new = [line for line in differences(jar_of("4.1.2"), "4.0.1") if line.startswith("20 ")]
    names = [line.split(":")[0].split()[-1] for line in new]
    assert names == ["key", "key.GroupId", "value", "value.AssignmentEpoch"]
    assert [line for line in new if not line.endswith(", the definitions have nothing")] == []
