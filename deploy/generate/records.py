"""The page of all records, `schemas/RECORDS.md`, from their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offsets_decoder.definitions import all_embedded, records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offsets_decoder.definitions import Body, EmbeddedDefinition, Field, RecordDefinition

_INTRODUCTION = """\
# The records of `__consumer_offsets`

Generated from `schemas/records/` and `schemas/embedded/` by `python -m deploy.generate`: change those files, not this
page. Tests compare them with the schemas in the jars of Kafka 4.0 to 4.4, and with the classes of Kafka Streams 4.4.

A key is its record type, an int16, followed by its fields. A value is its version, an int16, followed by its fields; a
null value is a tombstone. Integers are big-endian. In *flexible* versions, lengths are varints of length + 1, and every
struct ends with its tagged fields. In other versions, the length of a string has two bytes; the length of bytes and
arrays has four. An absent tagged field has its default. If the table has no default, it is zero, an empty string or
array, the zero uuid, or a struct of these. *null* after a type means that the field is nullable. *Since* is the Kafka
release and the KIP that added the field.

"""
_EMBEDDED = """
# What the bytes of members contain

In GroupMetadata, the members' `subscription` and `assignment` are bytes that clients encode. If the protocol type is
`consumer`, they are a ConsumerProtocolSubscription and a ConsumerProtocolAssignment, unless another client library has
its own format. The `UserData` in them is of the assignor. The protocol `stream` is the assignor of Kafka Streams: then
they are a SubscriptionInfo and an AssignmentInfo. The version comes before the fields, as an int16 or int32; no version
is flexible. `utf` is what Java's `writeUTF` writes: modified UTF-8 after its length, a uint16. `chars` is an int32 with
the number of characters and what Java's `writeChars` writes: two bytes for each.
"""
_HEADER = "| field | type | versions | tag | default | since | description |\n|---|---|---|---|---|---|---|\n"


def page() -> str:
    """Return the text of the page."""
    of_records = "".join(_record(definition) for definition in records().values())
    return _INTRODUCTION + _index() + of_records + _EMBEDDED + "".join(map(_embedded, all_embedded()))


def _index() -> str:
    lines = ("| type | record | since | value versions |\n", "|---|---|---|---|\n")
    return "".join([*lines, *(_index_line(definition) for definition in records().values())])


def _index_line(definition: RecordDefinition) -> str:
    versions = "" if definition.planned else str(definition.value.versions)
    return f"| {definition.type} | {definition.name} | {_releases(definition)} | {versions} |\n"


def _releases(definition: RecordDefinition) -> str:
    if definition.planned:
        return f"never shipped, planned by {_kip(definition.kip)}"
    since, until = definition.since, definition.until
    span = since if not until else f"{since} only" if until == since else f"{since} to {until}"
    return " ".join(filter(None, [span, _kip(definition.kip)]))


def _record(definition: RecordDefinition) -> str:
    parts = [f"\n## {definition.type} {definition.name}\n\n{definition.about}\n\nSince: {_releases(definition)}.\n"]
    if not definition.planned:
        parts.append(_body("Key", definition.key, definition))
        parts.append(_body(f"Value, version {definition.value.versions}", definition.value, definition))
        for release, body in definition.layouts.items():
            parts.append(_body(f"Value up to Kafka {release}, version {body.versions}", body, definition))
    return "".join(parts)


def _embedded(definition: EmbeddedDefinition) -> str:
    title = f"\n## {definition.name}\n\n{definition.about}\n\nSince: {definition.since}.\n"
    return title + _body(f"Version {definition.body.versions}, an {definition.prefix}", definition.body, definition)


def _body(title: str, body: Body, definition: RecordDefinition | EmbeddedDefinition) -> str:
    flexible = f" (flexible: {body.flexible})" if title.startswith("Value") else ""
    rows = "".join(_row(field, path) for path, field in _fields(body.fields, definition, ""))
    return f"\n**{title}**{flexible}\n\n{_HEADER}{rows}"


def _fields(
    fields: tuple[Field, ...], definition: RecordDefinition | EmbeddedDefinition, prefix: str
) -> Iterator[tuple[str, Field]]:
    """Yield every field with its path; after a struct come its fields."""
    for field in fields:
        yield prefix + field.name, field
        struct = definition.structs.get(field.element, ())
        yield from _fields(struct, definition, f"{prefix}{field.name}{'[]' if field.is_array else ''}.")


def _row(field: Field, path: str) -> str:
    type_name = f"`{field.type}`{' null' if field.nullable else ''}"
    default = "" if field.default in {"", 0} and field.tag is None else _default(field)
    tag = "" if field.tag is None else str(field.tag)
    since = " ".join(filter(None, [field.since, _kip(field.kip)]))
    return f"| `{path}` | {type_name} | {field.versions} | {tag} | {default} | {since} | {field.about} |\n"


def _default(field: Field) -> str:
    if field.default is None:
        return "null"
    if field.default == "":
        return "empty"
    return "zero uuid" if field.type == "uuid" else str(field.default)


def _kip(number: int | None) -> str:
    return "" if number is None else f"KIP-{number}"
