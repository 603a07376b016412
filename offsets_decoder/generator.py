"""Writes, from a resolved layout, the Python source of a reader made for that one layout: the fast path.

Construct walks objects for every field of every record. A layout is known beforehand, so all of that walking can be
done once, here. The source reads fields in a row with one `unpack_from`, takes one-byte varints in place, and leaves
every rare case to `slow_cases`. It says nothing of what is wrong with bytes it refuses: the referee does.

It needs few checks of its own. Positions only grow, an index or `unpack_from` past the end raises, and a slice cut
short leaves the position past the end, which the check at the end refuses.
"""

from __future__ import annotations

from contextlib import contextmanager
from struct import Struct, calcsize
from typing import TYPE_CHECKING, Any

from offsets_decoder import slow_cases
from offsets_decoder.scalars import CODES, MAX_STRING, SIZES
from offsets_decoder.slow_cases import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from offsets_decoder.layout import Shape, Slot
    from offsets_decoder.record import UnknownTag

_PREFIX = 2  # bytes before the fields: a key's record type, a value's version
# What `slow_cases` calls the reader of a type, by whether it may be null: for flexible versions and for those before.
_COMPACT = {
    ("string", False): "text",
    ("string", True): "nullable_text",
    ("bytes", False): "blob",
    ("bytes", True): "nullable_blob",
}
_OLD = {
    ("string", True): "old_nullable_text",
    ("bytes", False): "old_blob",
    ("bytes", True): "old_nullable_blob",
}  # strings that may not be null are read in place


def reader_of(shape: Shape, part: str) -> Callable[[bytes, list[UnknownTag]], dict[str, Any]]:
    """Compile a function that reads a whole key or value and appends the tags it does not know to a list.

    It raises IndexError, ValueError or struct.error for what it does not read.
    """
    source, unpackers = source_of(shape, part)
    namespace: dict[str, Any] = {**vars(slow_cases), **unpackers}
    exec(compile(source, f"<reader of {part}>", "exec"), namespace)  # noqa: S102 - made from our definitions alone
    return namespace["read"]  # type: ignore[no-any-return]


def source_of(shape: Shape, part: str) -> tuple[str, dict[str, Any]]:
    """Write the reader's source, and the unpacking functions it names."""
    writer = _Writer()
    writer.line("def read(buf, unknown):")
    with writer.indented():
        writer.line(f"p = {_PREFIX}")
        result = writer.struct(shape, part)
        with writer.block("if p != len(buf):"):
            writer.line("raise Refused")
        writer.line(f"return {result}")
    return "\n".join(writer.lines) + "\n", writer.unpackers


class _Writer:
    """The lines so far. Methods write the code that reads something and give the expression that holds it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.unpackers: dict[str, Any] = {}
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def indented(self) -> Iterator[None]:
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        with self.indented():
            yield

    def name(self, hint: str) -> str:
        """Give a variable name that nothing else has."""
        self._names += 1
        return f"{hint}{self._names}"

    def struct(self, shape: Shape, path: str) -> str:
        found: dict[str, str] = {}
        row: list[Slot] = []
        for slot in shape.plain:
            if slot.element in CODES and not slot.is_array:
                row.append(slot)
                continue
            self._row(row, found)
            found[slot.name] = self.field(slot, f"{path}.{slot.name}", flexible=shape.flexible)
        self._row(row, found)
        if shape.flexible:
            self._tags(shape, found, path)
        entries = (f"{slot.snake!r}: {found.get(slot.name) or repr(slot.default_value())}" for slot in shape.slots)
        return f"{{{', '.join(entries)}}}"

    def _row(self, row: list[Slot], found: dict[str, str]) -> None:
        """Read neighbours of fixed size with one call."""
        if not row:
            return
        codes = "".join(CODES[slot.element] for slot in row)
        names = [self.name("v") for _ in row]
        self.line(f"{', '.join(names)}, = {self._unpacker(codes)}(buf, p)")
        self.line(f"p += {calcsize('>' + codes)}")
        for slot, name in zip(row, names, strict=True):
            found[slot.name] = f"uuid({name})" if slot.element == "uuid" else name
        row.clear()

    def _unpacker(self, codes: str) -> str:
        self.unpackers[f"unpack_{codes}"] = Struct(">" + codes).unpack_from
        return f"unpack_{codes}"

    def field(self, slot: Slot, path: str, *, flexible: bool) -> str:
        """Read a field of any type, whatever stands beside it."""
        target = self.name("v")
        if not slot.is_array:
            self._one(slot, target, path, flexible=flexible, nullable=slot.nullable)
        elif slot.element in CODES and slot.element != "uuid" and flexible:
            self._numbers(slot, target)
        else:
            self._loop(slot, target, path, flexible=flexible)
        return target

    def _one(self, slot: Slot, target: str, path: str, *, flexible: bool, nullable: bool) -> None:
        if slot.element in CODES:
            found: dict[str, str] = {}
            self._row([slot], found)
            self.line(f"{target} = {found[slot.name]}")
        elif slot.shape is not None:
            self._struct_field(slot, slot.shape, target, path, nullable=nullable)
        elif flexible:
            self._compact(target, _COMPACT[slot.element, nullable], "decode()" if slot.element == "string" else None)
        elif slot.element == "string" and not nullable:
            self._old_text(target)
        else:
            self.line(f"{target}, p = {_OLD[slot.element, nullable]}(buf, p)")

    def _old_text(self, target: str) -> None:
        """Read a string in place: every key has one."""
        self.line("n = buf[p] << 8 | buf[p + 1]")
        with self.block(f"if n > {MAX_STRING}:"):  # as int16 it is negative
            self.line("raise Refused")
        self.line("e = p + 2 + n")
        self.line(f"{target} = buf[p + 2 : e].decode()")
        self.line("p = e")

    def _compact(self, target: str, slow: str, convert: str | None) -> None:
        self.line("n = buf[p]")
        with self.block(f"if 0 < n <= {SMALL}:"):
            self.line("e = p + n")
            self.line(f"{target} = buf[p + 1 : e]{'.' + convert if convert else ''}")
            self.line("p = e")
        with self.block("else:"):
            self.line(f"{target}, p = {slow}(buf, p)")

    def _struct_field(self, slot: Slot, shape: Shape, target: str, path: str, *, nullable: bool) -> None:
        if not nullable:
            self.line(f"{target} = {self.struct(shape, path)}")
            return
        self.line(f"{target} = None")
        self.line(f"there = present(buf[p], {0xFF if slot.tag is None else 0})")
        self.line("p += 1")
        with self.block("if there:"):
            self.line(f"{target} = {self.struct(shape, path)}")

    def _numbers(self, slot: Slot, target: str) -> None:
        code = CODES[slot.element]
        table = f"unpack_many_{code}"
        self.unpackers[table] = slow_cases.unpackers(code)
        self.line("n = buf[p]")
        with self.block(f"if 0 < n <= {SMALL}:"):
            self.line(f"{target} = [*{table}[n](buf, p + 1)]")
            size = SIZES[slot.element]
            self.line(f"p += {size} * n - {size - 1}")
        with self.block("else:"):
            self.line(f"{target}, p = {'nullable_' if slot.nullable else ''}many(buf, p, {code!r})")

    def _loop(self, slot: Slot, target: str, path: str, *, flexible: bool) -> None:
        count, i = self.name("n"), self.name("i")
        if flexible:
            self.line(f"{count} = buf[p]")
            self.line("p += 1")
        else:
            self.line(f"{count}, p = {'old_nullable_count' if slot.nullable else 'old_count'}(buf, p)")
        self.line(f"{target} = []")
        with self.block(f"if {count} != 1:"):
            self._long_or_null(slot, target, count, flexible=flexible)
            with self.block(f"for {i} in range(1, {count}):"):
                element = self.name("v")
                self._one(slot, element, f"{path}[{{{i} - 1}}]", flexible=flexible, nullable=False)
                self.line(f"{target}.append({element})")

    def _long_or_null(self, slot: Slot, target: str, count: str, *, flexible: bool) -> None:
        if slot.nullable:
            with self.block(f"if not {count}:"):
                self.line(f"{target} = None")
        if flexible:
            head = f"elif {count} > {SMALL}:" if slot.nullable else f"if not 0 < {count} <= {SMALL}:"
            with self.block(head):
                self.line(f"{count}, p = sized(buf, p - 1)")

    def _tags(self, shape: Shape, found: dict[str, str], path: str) -> None:
        if not shape.tagged:
            with self.block("if buf[p]:"):
                self.line(f'p = unknown_tags(buf, p, unknown, f"{path}")')
            with self.block("else:"):
                self.line("p += 1")
            return
        for slot in shape.tagged:
            found[slot.name] = self.name("t")
            self.line(f"{found[slot.name]} = {slot.default_value()!r}")
        count, tag, end = self.name("n"), self.name("g"), self.name("e")
        self.line(f"{count} = buf[p]")
        self.line("p += 1")
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > {SMALL}:"):
                self.line(f"{count}, p = uvarint(buf, p - 1)")
            self.line(f"{tag} = -1")
            with self.block(f"for _ in range({count}):"):
                self.line(f"{tag}, p, {end} = tag_head(buf, p, {tag})")
                self._tag_cases(shape, found, path, tag, end)

    def _tag_cases(self, shape: Shape, found: dict[str, str], path: str, tag: str, end: str) -> None:
        word = "if"
        for slot in shape.tagged:
            with self.block(f"{word} {tag} == {slot.tag}:"):
                self.line(f"{found[slot.name]} = {self.field(slot, f'{path}.{slot.name}', flexible=True)}")
                with self.block(f"if p != {end}:"):
                    self.line("raise Refused")
            word = "elif"
        with self.block("else:"):
            self.line(f'unknown.append(UnknownTag(f"{path}", {tag}, bytes(buf[p:{end}])))')
            self.line(f"p = {end}")
