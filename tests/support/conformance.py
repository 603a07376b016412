"""Compares the definitions with the message schemas in Kafka's own jars. Nothing is downloaded here."""

import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from offsets_decoder.definitions import INTEGERS, Body, Field, RecordDefinition, Versions, field_default, records

FieldDescriptions = dict[str, str]
"""The type, versions and other properties of each field, by its path: "17 StreamsGroupMetadata value.Epoch"."""

_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_LEGACY = 0  # until 4.0 types 0 and 1 shared a schema; brokers wrote type 0 only in the form of its schema in 4.1


def differences(jar: Path, release: str) -> list[str]:
    """Return the differences between the definitions, as of `release` ("4.3.1"), and the jar; empty if none."""
    kafka, defined = describe_jar(jar), describe_definitions(release)
    return [
        f"{path}: Kafka {release} has {kafka.get(path, 'nothing')}, the definitions have {defined.get(path, 'nothing')}"
        for path in sorted(kafka.keys() | defined.keys(), key=lambda one: (int(one.partition(" ")[0]), one))
        if kafka.get(path) != defined.get(path)
    ]


def describe_definitions(release: str) -> FieldDescriptions:
    """Return the fields of the records of a release, from the definitions."""
    descriptions: FieldDescriptions = {}
    for definition in records().values():
        if _written_in(definition, release):
            value = next((b for last, b in definition.layouts.items() if _is_at_most(release, last)), definition.value)
            name = f"{definition.type} {definition.name}"
            descriptions |= _describe(name, definition.key, value, definition.structs, release)
    return descriptions


def describe_jar(jar: Path) -> FieldDescriptions:
    """Return the fields of all records, from the schemas in a `kafka-group-coordinator` jar."""
    schemas = read_schemas(jar)
    descriptions: FieldDescriptions = {}
    for name, schema in schemas.items():
        if name.endswith("Key"):
            structs: dict[str, tuple[Field, ...]] = {}
            key = _body(schema, structs, Versions(0, 0))  # its versions are record types, which are not encoded
            of_value = schemas[name.removesuffix("Key") + "Value"]
            value = _body(of_value, structs, Versions.parse(of_value["validVersions"]))
            for number in record_types(schema):
                descriptions |= _describe(f"{number} {name.removesuffix('Key')}", key, value, structs, "")
    return descriptions


def read_schemas(jar: Path) -> dict[str, dict[str, Any]]:
    """Return the schemas of keys and values in a `kafka-group-coordinator` jar, by name."""
    with zipfile.ZipFile(jar) as archive:
        names = [n for n in archive.namelist() if re.fullmatch(r"common/message/\w+(Key|Value)\.json", n)]
        loaded = (json.loads(_COMMENT.sub("", archive.read(name).decode())) for name in names)
        return {schema["name"]: schema for schema in loaded}


def record_types(key: Mapping[str, Any]) -> Iterator[int]:
    """Yield the record types of a key: its apiKey, or until 4.0 its versions."""
    if "apiKey" in key:
        yield key["apiKey"]
    else:
        yield from (number for number in Versions.parse(key["validVersions"]) if number != _LEGACY)


def _body(schema: Mapping[str, Any], structs: dict[str, tuple[Field, ...]], valid: Versions) -> Body:
    """Return a schema as a definition, and add the structs that it defines."""
    for struct in schema.get("commonStructs", ()):
        structs[struct["name"]] = _fields(struct, structs, valid)
    return Body(_fields(schema, structs, valid), valid, Versions.parse(schema["flexibleVersions"]))


def _fields(parent: Mapping[str, Any], structs: dict[str, tuple[Field, ...]], valid: Versions) -> tuple[Field, ...]:
    for one in parent["fields"]:
        if one.get("fields"):
            structs[one["type"].removeprefix("[]")] = _fields(one, structs, valid)
    return tuple(
        Field(
            name=one["name"],
            type=one["type"],
            about="",
            since="",
            kip=None,
            # Without `versions`, a tagged field has the versions of its tag. Versions of a key are record types.
            versions=Versions.parse(one.get("versions") or one.get("taggedVersions", "0+")) if valid.last else valid,
            tag=one.get("tag"),
            default=_schema_default(one),
            nullable="nullableVersions" in one,
            ignorable=one.get("ignorable", False),
        )
        for one in parent["fields"]
    )


def _schema_default(schema_field: Mapping[str, Any]) -> int | str | None:
    default = schema_field.get("default")
    if default is None:
        # Kafka's generator ignores a default null without quotes: absent arrays are empty, absent structs have zeros.
        return field_default(schema_field["type"], None)
    if default == "null":
        return None
    return int(default) if schema_field["type"] in INTEGERS else str(default)


def _describe(
    name: str, key: Body, value: Body, structs: Mapping[str, tuple[Field, ...]], release: str
) -> FieldDescriptions:
    """Return the descriptions of a record's key and value, and of their fields as of a release."""
    found: FieldDescriptions = {}

    def add(path: str, fields: Iterable[Field], valid: Versions) -> None:
        for field in fields:
            if _is_at_most(field.since, release):
                own = f"{path}.{field.name}"
                found[own] = (
                    f"{field.type}, versions {_intersection(field.versions, valid)}, tag {field.tag}, "
                    f"default {field.default!r}, nullable {field.nullable}, ignorable {field.ignorable}"
                )
                add(own, structs.get(field.element, ()), valid)

    for part, body in (("key", key), ("value", value)):
        versions = _intersection(body.versions, body.versions)
        found[f"{name} {part}"] = f"versions {versions}, flexible {_intersection(body.flexible, body.versions)}"
        add(f"{name} {part}", body.fields, body.versions)
    return found


def _intersection(versions: Versions, valid: Versions) -> list[int]:
    return [version for version in valid if version in versions]


def _written_in(definition: RecordDefinition, release: str) -> bool:
    if definition.planned or (definition.type == _LEGACY and _is_at_most(release, "4.0")):
        return False
    return _is_at_most(definition.since, release) and (not definition.until or _is_at_most(release, definition.until))


def _is_at_most(release: str, last: str) -> bool:
    """Return whether a release is `last`, a bugfix release of it, or earlier."""
    return _numbers(release)[:2] <= _numbers(last)[:2]


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))
