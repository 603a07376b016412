import json
import re
import zipfile
from typing import Any

import pytest

from offsets_decoder.definitions import schemas
from streaming_app.jvm.jar_sets import find_jars, kafka_jars
from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.kafka import protocol
from streaming_app.kafka.protocol import build

NAMES = sorted(file.name.removesuffix(".json") for file in schemas("messages").iterdir() if file.name.endswith(".json"))
SIGNIFICANT_KEYS = ("name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "default")


@pytest.fixture(scope="module")
def kafka_jar() -> zipfile.ZipFile:
    """The jar with Kafka's own definitions. A jar that cannot be downloaded is an error: nothing else checks ours."""
    (jar,) = (jar for jar in find_jars(kafka_jars()) if jar.name == f"kafka-clients-{KAFKA_VERSION}.jar")
    return zipfile.ZipFile(jar)


def normalize_fields(structs: dict[str, Any], definition: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of a definition, with common structs inlined and only the keys that affect the encoding."""
    normalized = []
    for field in definition["fields"]:
        keys = [key for key in SIGNIFICANT_KEYS if key in field]
        significant = {key: str(field[key]).lower() if key == "default" else field[key] for key in keys}
        struct = field if "fields" in field else structs.get(field["type"].removeprefix("[]"))
        normalized.append({**significant, **({"fields": normalize_fields(structs, struct)} if struct else {})})
    return normalized


def normalize(text: str) -> dict[str, Any]:
    definition = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    structs = {struct["name"]: struct for struct in definition.get("commonStructs", [])}
    head = {key: definition[key] for key in ("apiKey", "type", "name", "validVersions", "flexibleVersions")}
    return {**head, "fields": normalize_fields(structs, definition)}


@pytest.mark.parametrize("name", NAMES)
def test_our_definition_describes_the_same_message_as_kafkas_own(name: str, kafka_jar: zipfile.ZipFile) -> None:
    ours = normalize((schemas("messages") / f"{name}.json").read_text(encoding="utf-8"))
    assert ours == normalize(kafka_jar.read(f"common/message/{name}.json").decode())


def test_nested_dicts_are_encoded_and_decoded_without_loss_and_an_unknown_field_is_an_error() -> None:
    config, part = {"key": "k", "value": "v"}, {"source_topic_regex": [], "repartition_source_topics": []}
    changelog = {"name": "store-changelog", "partitions": 0, "replication_factor": 1, "topic_configs": [config]}
    subtopology = {
        **part,
        "subtopology_id": "0",
        "source_topics": ["in"],
        "state_changelog_topics": [changelog],
        "repartition_sink_topics": [],
        "copartition_groups": [{**part, "source_topics": [0]}],
    }
    sent = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "endpoint_information_epoch": 0,
        "topology": {"epoch": 3, "subtopologies": [subtopology]},
        "user_endpoint": {"host": "h", "port": 65535},
        "active_tasks": [{"subtopology_id": "0", "partitions": [1, 2]}],
    }
    request = protocol.StreamsGroupHeartbeatRequest
    decoded = request.decode(build(request, sent).encode(version=1), version=1).to_dict()
    assert {name: decoded[name] for name in sent} == sent
    assert decoded["standby_tasks"] is None
    assert decoded["rebalance_timeout_ms"] == -1
    with pytest.raises(KeyError, match="no_such_field"):
        build(protocol.StreamsGroupDescribeRequest, {"no_such_field": 1})
