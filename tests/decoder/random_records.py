"""Random records, drawn with a seeded Random: from our definitions, or from the message schemas in Kafka's jars."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import schemas
from offsets_decoder.layout import SHIPPED, Shape, Slot, key_shape, value_shape

if TYPE_CHECKING:
    from random import Random

Kind = tuple[int, int, str | None]
"""A record type, a version of its value, and the name of an older layout or None."""

KINDS: list[Kind] = [
    (number, version, layout)
    for number, definition in schemas.records().items()
    for layout, body in [(None, definition.value), *definition.layouts.items()]
    for version in body.versions
]
_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}
_LETTERS = 'abc-_.09 é€😀\x00"\\'  # one to four bytes each in UTF-8, and what JSON must escape


def kind_name(kind: Kind) -> str:
    number, version, layout = kind
    name = schemas.records()[number].name
    return f"{number}-{name}-v{version}" + (f"-{layout}" if layout else "")


def random_record(
    random: Random, kind: Kind, dialect: str = SHIPPED, *, longest: int = 130
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A key and a value with all of their fields, as `encode` takes them; nothing is longer than `longest`."""
    number, version, layout = kind
    maker = _Maker(random, longest)
    return maker.struct(key_shape(number)), maker.struct(value_shape(number, version, dialect, layout))


def random_kafka_json(random: Random, schema: dict[str, Any], version: int) -> dict[str, Any]:
    """The JSON of a message as one of Kafka's own schemas describes it, for its JSON converter to read."""
    structs = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    return _KafkaMaker(random, structs, version).struct(schema["fields"])


class _Maker:
    def __init__(self, random: Random, longest: int) -> None:
        self.random = random
        self.longest = longest

    def struct(self, shape: Shape) -> dict[str, Any]:
        return {slot.snake: self._slot(slot) if slot.present else slot.default_value() for slot in shape.slots}

    def _slot(self, slot: Slot) -> Any:
        if slot.nullable and self.random.random() < 0.3:
            return None
        if slot.tag is not None and self.random.random() < 0.3:
            return slot.default_value()
        if not slot.is_array:
            return self._element(slot)
        counts = [0, 1, 1, 2, 2 if slot.shape else self.longest]
        return [self._element(slot) for _ in range(self.random.choice(counts))]

    def _element(self, slot: Slot) -> Any:
        return self.scalar(slot.element) if slot.shape is None else self.struct(slot.shape)

    def scalar(self, kind: str) -> Any:
        if kind in _BITS:
            return self._number(kind)
        length = self.random.choice([0, 1, 5, self.longest])
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


class _KafkaMaker:
    def __init__(self, random: Random, structs: dict[str, Any], version: int) -> None:
        self.random = random
        self.structs = structs
        self.version = version
        self.scalars = _Maker(random, 130)

    def struct(self, fields: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            field["name"][0].lower() + field["name"][1:]: self._field(field)
            for field in fields
            if self._has(field.get("versions") or field["taggedVersions"])
            and not ("tag" in field and self.random.random() < 0.4)
        }

    def _has(self, versions: str) -> bool:
        return self.version in schemas.Versions.parse(versions)

    def _field(self, field: dict[str, Any]) -> Any:
        if self._has(field.get("nullableVersions", "none")) and self.random.random() < 0.3:
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


def damaged(random: Random, data: bytes) -> bytes:
    """The bytes with one or two of them changed, added, dropped or cut off."""
    result = bytearray(data)
    for _ in range(random.choice([1, 1, 2])):
        at = random.randrange(len(result) + 1)
        byte = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)])
        match random.randrange(4):
            case 0:
                result[at : at + 1] = bytes((byte,))
            case 1:
                result[at:at] = bytes((byte,))
            case 2:
                del result[at : at + 1]
            case 3:
                del result[at:]
    return bytes(result)
