"""Random records from a seeded Random: from our definitions, or from the message schemas in Kafka's jars."""

import base64
from random import Random
from typing import Any

from offsets_decoder import definitions
from offsets_decoder.layout import FieldLayout, StructLayout, key_layout, value_layout

Variant = tuple[int, int, str | None]
"""A record type, a version of its value, and the name of an older layout or None."""

VARIANTS: list[Variant] = [
    (number, version, layout)
    for number, definition in definitions.records().items()
    for layout, body in [(None, definition.value), *definition.layouts.items()]
    for version in body.versions
]
_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}
_LETTERS = 'abc-_.09 é€😀\x00"\\'  # one to four bytes each in UTF-8, and characters that JSON escapes


def variant_id(variant: Variant) -> str:
    number, version, layout = variant
    name = definitions.records()[number].name
    return f"{number}-{name}-v{version}" + (f"-{layout}" if layout else "")


def random_record(random: Random, variant: Variant, *, max_length: int = 130) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a key and a value with all of their fields, as `encode` takes them, up to `max_length` long."""
    number, version, layout = variant
    generator = RecordGenerator(random, max_length)
    return generator.struct(key_layout(number)), generator.struct(value_layout(number, version, layout))


def random_kafka_json(random: Random, schema: dict[str, Any], version: int) -> dict[str, Any]:
    """Return the JSON of a message, in the form that Kafka's JSON converter for the schema reads."""
    structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    return _KafkaJsonGenerator(random, structs, version).struct(schema["fields"])


class RecordGenerator:
    """Generates random values for the fields of a layout."""

    def __init__(self, random: Random, max_length: int) -> None:
        self.random = random
        self.max_length = max_length

    def struct(self, layout: StructLayout) -> dict[str, Any]:
        return {f.snake: self._field(f) if f.present else f.default_value() for f in layout.fields}

    def _field(self, field: FieldLayout) -> Any:
        if field.nullable and self.random.random() < 0.3:
            return None
        if field.tag is not None and self.random.random() < 0.3:
            return field.default_value()
        if not field.is_array:
            return self._element(field)
        counts = [0, 1, 1, 2, 2 if field.struct else self.max_length]
        return [self._element(field) for _ in range(self.random.choice(counts))]

    def _element(self, field: FieldLayout) -> Any:
        return self.scalar(field.element) if field.struct is None else self.struct(field.struct)

    def scalar(self, kind: str) -> Any:
        if kind in _BITS:
            return self._number(kind)
        length = self.random.choice([0, 1, 5, self.max_length])
        if kind == "string":
            return "".join(self.random.choices(_LETTERS, k=length))
        if kind == "bytes":
            return self.random.randbytes(length)
        raw = self.random.choice([bytes(16), self.random.randbytes(16)])
        return base64.urlsafe_b64encode(raw)[:22].decode()

    def _number(self, kind: str) -> int:
        bits = _BITS[kind]
        lowest, highest = (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return self.random.choice([0, 1, 2, lowest, max(lowest, -1), highest, self.random.randint(lowest, highest)])


class _KafkaJsonGenerator:
    """Generates random JSON for the fields of a message schema."""

    def __init__(self, random: Random, structs: dict[str, Any], version: int) -> None:
        self.random = random
        self.structs = structs
        self.version = version
        self.scalars = RecordGenerator(random, 130)

    def struct(self, fields: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            field["name"][0].lower() + field["name"][1:]: self._field(field)
            for field in fields
            if self._in_version(field.get("versions") or field["taggedVersions"])
            and not ("tag" in field and self.random.random() < 0.4)
        }

    def _in_version(self, versions: str) -> bool:
        return self.version in definitions.Versions.parse(versions)

    def _field(self, field: dict[str, Any]) -> Any:
        if self._in_version(field.get("nullableVersions", "none")) and self.random.random() < 0.3:
            return None
        element = field["type"].removeprefix("[]")
        inner = field.get("fields") or self.structs.get(element)
        if not field["type"].startswith("[]"):
            return self._element(element, inner)
        return [self._element(element, inner) for _ in range(self.random.choice([0, 1, 2, 2 if inner else 130]))]

    def _element(self, element: str, inner: list[dict[str, Any]] | None) -> Any:
        if inner is not None:
            return self.struct(inner)
        value = self.scalars.scalar(element)
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def corrupt(random: Random, data: bytes) -> bytes:
    """Return the bytes with one or two changes: a byte replaced, inserted or deleted, or the end cut off."""
    result = bytearray(data)
    for _ in range(random.choice([1, 1, 2])):
        position = random.randrange(len(result) + 1)
        byte = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)])
        match random.randrange(4):
            case 0:
                result[position : position + 1] = bytes((byte,))
            case 1:
                result[position:position] = bytes((byte,))
            case 2:
                del result[position : position + 1]
            case 3:
                del result[position:]
    return bytes(result)
