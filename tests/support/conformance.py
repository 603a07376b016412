"""Compares the definitions with the message schemas in Kafka's own jars. Nothing is downloaded here."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offsets_decoder.definitions import INTEGERS, Field, Versions, field_default, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from offsets_decoder.definitions import Body, RecordDefinition

FieldDescriptions = dict[str, str]
"""The type, versions and other properties of each field, by its path: "17 StreamsGroupMetadata value.Epoch"."""

_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_LEGACY = 0  # until 4.0 types 0 and 1 shared a schema; type 0 was only ever written as its schema in 4.1 has it


def differences(jar: Path, release: str) -> list[str]:
    """Return the differences between the definitions, as of `release` ("4.3.1"), and the jar; empty if none."""
    kafka, defined = describe_jar(jar), describe_definitions(release)
    return [
        f"{path}: Kafka {release} has {kafka.get(path, 'nothing')}, the definitions have {defined.get(path, 'nothing')}"
        for path in sorted(kafka.keys() | defined.keys(), key=_type_and_path)
        if kafka.get(path) != defined.get(path)
    ]


def describe_definitions(release: str) -> FieldDescriptions:
    """Return the fields of the records of a release, from the definitions."""
    descriptions: FieldDescriptions = {}
    for definition in records().values():
        if _written_in(definition, release):
            prefix = f"{definition.type} {definition.name}"
            body = next((b for last, b in definition.layouts.items() if _is_at_most(release, last)), definition.value)
            descriptions |= _describe_body(f"{prefix} key", definition.key, definition, release)
            descriptions |= _describe_body(f"{prefix} value", body, definition, release)
    return descriptions


def describe_jar(jar: Path) -> FieldDescriptions:
    """Return the fields of all records, from the schemas in a `kafka-group-coordinator` jar."""
    schemas = read_schemas(jar)
    descriptions: FieldDescriptions = {}
    for name, key in schemas.items():
        if not name.endswith("Key"):
            continue
        value = schemas[name.removesuffix("Key") + "Value"]
        for number in record_types(key):
            prefix = f"{number} {name.removesuffix('Key')}"
            descriptions |= _describe_schema(f"{prefix} key", key, keep_versions=False)
            descriptions |= _describe_schema(f"{prefix} value", value, keep_versions=True)
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


def _describe_schema(path: str, schema: Mapping[str, Any], *, keep_versions: bool) -> FieldDescriptions:
    structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    valid = Versions.parse(schema["validVersions"]) if keep_versions else Versions(0, 0)
    flexible = Versions.parse(schema["flexibleVersions"])
    descriptions = {path: _format_versions(valid, flexible)}
    for schema_field in schema["fields"]:
        descriptions |= _describe_schema_field(path, schema_field, structs, valid, keep_versions=keep_versions)
    return descriptions


def _describe_schema_field(
    path: str, schema_field: Mapping[str, Any], structs: Mapping[str, Any], valid: Versions, *, keep_versions: bool
) -> FieldDescriptions:
    kind = schema_field["type"]
    # Without `versions`, a tagged field has those of its tag.
    versions = schema_field.get("versions") or schema_field.get("taggedVersions", "0+")
    field_path = f"{path}.{schema_field['name']}"
    descriptions = {
        field_path: _format_field(
            Field(
                name=schema_field["name"],
                type=kind,
                about="",
                since="",
                kip=None,
                versions=Versions.parse(versions) if keep_versions else Versions(0, 0),
                tag=schema_field.get("tag"),
                default=_schema_default(schema_field),
                nullable="nullableVersions" in schema_field,
                ignorable=schema_field.get("ignorable", False),
            ),
            valid,
        )
    }
    for inner in schema_field.get("fields") or structs.get(kind.removeprefix("[]"), ()):
        descriptions |= _describe_schema_field(field_path, inner, structs, valid, keep_versions=keep_versions)
    return descriptions


def _schema_default(schema_field: Mapping[str, Any]) -> int | str | None:
    default = schema_field.get("default")
    if default is None:
        # Kafka's generator ignores a default null without quotes: absent arrays are empty, absent structs have zeros.
        return field_default(schema_field["type"], None)
    if default == "null":
        return None
    return int(default) if schema_field["type"] in INTEGERS else str(default)


def _describe_body(path: str, body: Body, definition: RecordDefinition, release: str) -> FieldDescriptions:
    descriptions = {path: _format_versions(body.versions, body.flexible)}
    for field in body.fields:
        descriptions |= _describe_field(path, field, definition, body.versions, release)
    return descriptions


def _describe_field(
    path: str, field: Field, definition: RecordDefinition, valid: Versions, release: str
) -> FieldDescriptions:
    if not _is_at_most(field.since, release):
        return {}
    field_path = f"{path}.{field.name}"
    descriptions = {field_path: _format_field(field, valid)}
    for inner in definition.structs.get(field.element, ()):
        descriptions |= _describe_field(field_path, inner, definition, valid, release)
    return descriptions


def _format_versions(valid: Versions, flexible: Versions) -> str:
    return f"versions {_intersection(valid, valid)}, flexible {_intersection(flexible, valid)}"


def _format_field(field: Field, valid: Versions) -> str:
    return (
        f"{field.type}, versions {_intersection(field.versions, valid)}, tag {field.tag}, default {field.default!r}, "
        f"nullable {field.nullable}, ignorable {field.ignorable}"
    )


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


def _type_and_path(path: str) -> tuple[int, str]:
    return int(path.split(" ", 1)[0]), path
