import json
import re
import zipfile
from typing import Any

import pytest

from offsets_decoder.definitions import schemas
from streaming_app.jvm.jars import KAFKA_VERSION, find_jars, kafka_jars

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
