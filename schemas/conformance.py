"""Holds the definitions against the message schemas inside Kafka's own jars. Comparison only; nothing is fetched.

Run as `python -m schemas.conformance JAR RELEASE` with a `kafka-group-coordinator` jar, it prints each difference: for
a new release, that is what it adds.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.definitions import Field, Versions
from schemas.records_loader import INTEGERS, field_default, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from schemas.definitions import Body, RecordDefinition

Facts = dict[str, str]
"""What is known of each field by its path, such as "17 StreamsGroupMetadata value.Epoch": its type and so on."""

_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_LEGACY = 0  # until 4.0 types 0 and 1 shared one schema; what 4.1 made of type 0 is what was ever written


def differences(jar: Path, release: str) -> list[str]:
    """Each way in which the definitions, as of `release` ("4.3.1"), are not what the jar says; empty if they agree."""
    theirs, ours = kafka_facts(jar), own_facts(release)
    return [
        f"{path}: Kafka {release} has {theirs.get(path, 'nothing')}, the definitions have {ours.get(path, 'nothing')}"
        for path in sorted(theirs.keys() | ours.keys(), key=_by_type)
        if theirs.get(path) != ours.get(path)
    ]


def own_facts(release: str) -> Facts:
    """Collect what the definitions say about the records of a release."""
    facts: Facts = {}
    for definition in records().values():
        if _written_in(definition, release):
            prefix = f"{definition.type} {definition.name}"
            body = next((b for last, b in definition.layouts.items() if _upto(release, last)), definition.value)
            facts |= _own_body(f"{prefix} key", definition.key, definition, release)
            facts |= _own_body(f"{prefix} value", body, definition, release)
    return facts


def kafka_facts(jar: Path) -> Facts:
    """Collect what the schemas in a `kafka-group-coordinator` jar say."""
    schemas = kafka_schemas(jar)
    facts: Facts = {}
    for name, key in schemas.items():
        if not name.endswith("Key"):
            continue
        value = schemas[name.removesuffix("Key") + "Value"]
        for number in record_types(key):
            prefix = f"{number} {name.removesuffix('Key')}"
            facts |= _kafka_body(f"{prefix} key", key, keep_versions=False)
            facts |= _kafka_body(f"{prefix} value", value, keep_versions=True)
    return facts


def kafka_schemas(jar: Path) -> dict[str, dict[str, Any]]:
    """Read the schemas of keys and values in a `kafka-group-coordinator` jar, by name."""
    with zipfile.ZipFile(jar) as archive:
        names = [n for n in archive.namelist() if re.fullmatch(r"common/message/\w+(Key|Value)\.json", n)]
        loaded = (json.loads(_COMMENT.sub("", archive.read(name).decode())) for name in names)
        return {schema["name"]: schema for schema in loaded}


def record_types(key: Mapping[str, Any]) -> Iterator[int]:
    """Give the record types of a key: its apiKey, or until 4.0 its versions."""
    if "apiKey" in key:
        yield key["apiKey"]
    else:
        yield from (number for number in Versions.parse(key["validVersions"]) if number != _LEGACY)


def _kafka_body(path: str, schema: Mapping[str, Any], *, keep_versions: bool) -> Facts:
    structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    valid = Versions.parse(schema["validVersions"]) if keep_versions else Versions(0, 0)
    flexible = Versions.parse(schema["flexibleVersions"])
    facts = {path: _body_fact(valid, flexible)}
    for line in schema["fields"]:
        facts |= _kafka_field(path, line, structs, valid, keep_versions=keep_versions)
    return facts


def _kafka_field(
    path: str, line: Mapping[str, Any], structs: Mapping[str, Any], valid: Versions, *, keep_versions: bool
) -> Facts:
    kind = line["type"]
    # A field may leave its versions to those of its tag.
    versions = line.get("versions") or line.get("taggedVersions", "0+")
    here = f"{path}.{line['name']}"
    facts = {
        here: _field_fact(
            Field(
                name=line["name"],
                type=kind,
                about="",
                since="",
                kip=None,
                versions=Versions.parse(versions) if keep_versions else Versions(0, 0),
                tag=line.get("tag"),
                default=_kafka_default(line),
                nullable="nullableVersions" in line,
                ignorable=line.get("ignorable", False),
            ),
            valid,
        )
    }
    for inner in line.get("fields") or structs.get(kind.removeprefix("[]"), ()):
        facts |= _kafka_field(here, inner, structs, valid, keep_versions=keep_versions)
    return facts


def _kafka_default(line: Mapping[str, Any]) -> int | str | None:
    default = line.get("default")
    if default is None:
        # A null without quotes is no default to Kafka's generator: absent arrays are empty and absent structs zeros.
        return field_default(line["type"], None)
    if default == "null":
        return None
    return int(default) if line["type"] in INTEGERS else str(default)


def _own_body(path: str, body: Body, definition: RecordDefinition, release: str) -> Facts:
    facts = {path: _body_fact(body.versions, body.flexible)}
    for field in body.fields:
        facts |= _own_field(path, field, definition, body.versions, release)
    return facts


def _own_field(path: str, field: Field, definition: RecordDefinition, valid: Versions, release: str) -> Facts:
    if not _upto(field.since, release):
        return {}
    here = f"{path}.{field.name}"
    facts = {here: _field_fact(field, valid)}
    for inner in definition.structs.get(field.element, ()):
        facts |= _own_field(here, inner, definition, valid, release)
    return facts


def _body_fact(valid: Versions, flexible: Versions) -> str:
    return f"versions {_within(valid, valid)}, flexible {_within(flexible, valid)}"


def _field_fact(field: Field, valid: Versions) -> str:
    return (
        f"{field.type}, versions {_within(field.versions, valid)}, tag {field.tag}, default {field.default!r}, "
        f"nullable {field.nullable}, ignorable {field.ignorable}"
    )


def _within(versions: Versions, valid: Versions) -> list[int]:
    return [version for version in valid if version in versions]


def _written_in(definition: RecordDefinition, release: str) -> bool:
    if definition.planned or (definition.type == _LEGACY and _upto(release, "4.0")):
        return False
    return _upto(definition.since, release) and (not definition.until or _upto(release, definition.until))


def _upto(release: str, last: str) -> bool:
    """Tell whether a release is `last`, a bugfix of it, or earlier."""
    return _numbers(release)[:2] <= _numbers(last)[:2]


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))


def _by_type(path: str) -> tuple[int, str]:
    return int(path.split(" ", 1)[0]), path


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences; 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m schemas.conformance", description="What a Kafka release adds.")
    parser.add_argument("jar", type=Path, help="the kafka-group-coordinator jar")
    parser.add_argument("release", help="its version, such as 4.4.0")
    chosen = parser.parse_args(arguments)
    found = differences(chosen.jar, chosen.release)
    sys.stdout.writelines(f"{line}\n" for line in found)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
