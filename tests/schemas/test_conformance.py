"""The definitions against the message schemas in Kafka's jars. A missing jar is an error, never a skip.

KAFKA_RELEASES lists further releases ("4.5.0"): the test fails with what they add, line by line.
"""

import json
import os
import zipfile
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


def message(name: str, fields: list[dict[str, object]], **settings: object) -> tuple[str, str]:
    flexible = "none" if name.endswith("Key") else "0+"
    schema = {"name": name, "validVersions": "0", "flexibleVersions": flexible, "fields": fields}
    return f"common/message/{name}.json", json.dumps(schema | settings)


def test_a_new_record_and_an_unknown_type_are_reported_too(tmp_path: Path) -> None:
    flag = {"name": "Flag", "type": "bool", "versions": "0+", "taggedVersions": "0+", "tag": 0, "default": "true"}
    inner = {"name": "Share", "type": "float64", "versions": "0+", "default": "0.5"}
    parts = {"name": "Parts", "type": "[]Part", "versions": "0+", "fields": [inner]}
    jar = tmp_path / "kafka-group-coordinator-4.5.0.jar"
    with zipfile.ZipFile(jar_of("4.4.0")) as original, zipfile.ZipFile(jar, "w") as modified:
        for name in original.namelist():
            if name.startswith("common/message/"):
                modified.writestr(name, original.read(name))
        modified.writestr(*message("NewThingKey", [{"name": "GroupId", "type": "string", "versions": "0"}], apiKey=24))
        modified.writestr(*message("NewThingValue", [parts, flag]))

    lines = differences(jar, "4.5.0")

    assert [line.split(":")[0] for line in lines] == [
        "24 NewThing key",
        "24 NewThing key.GroupId",
        "24 NewThing value",
        "24 NewThing value.Flag",
        "24 NewThing value.Parts",
        "24 NewThing value.Parts.Share",
    ]
    assert [line for line in lines if not line.endswith(", the definitions have nothing")] == []
