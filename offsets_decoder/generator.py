"""Generates the Python source of a reader from a layout, for this layout only: the fast path.

Construct walks its objects for every field of every record. The layout is known in advance, so the generator walks it
once. The generated source reads consecutive fixed-size fields with one `unpack_from`, decodes one-byte varints inline,
and calls `generated_runtime` in rare cases. It does not report errors: the reference decoder does.

It needs few checks. Positions only grow. An index or `unpack_from` past the end raises. A truncated slice leaves the
position past the end, which the check at the end rejects.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct, calcsize, unpack_from
from typing import Any

from offsets_decoder import generated_runtime
from offsets_decoder.generated_runtime import ONE_BYTE
from offsets_decoder.layout import CODES, MAX_STRING, SIZES, FieldLayout, StructLayout
from offsets_decoder.record import UnknownTag

_PREFIX = "int16"  # before the fields: a key's record type, a value's version


def compile_reader(
    layout: StructLayout, part: str, prefix: str = _PREFIX
) -> Callable[[bytes, list[UnknownTag]], dict[str, Any]]:
    """Compile a function that reads a whole key or value, and appends unknown tags to a list.

    It skips the number of the type `prefix` before the fields. It raises IndexError, ValueError or struct.error if it
    cannot read the bytes.
    """
    source, unpackers = generate_source(layout, part, prefix)
    namespace: dict[str, Any] = {**vars(generated_runtime), **unpackers}
    exec(compile(source, f"<reader of {part}>", "exec"), namespace)  # noqa: S102 - generated from our definitions alone
    return namespace["read"]  # type: ignore[no-any-return]


def generate_source(layout: StructLayout, part: str, prefix: str = _PREFIX) -> tuple[str, dict[str, Any]]:
    """Return the source of the reader, and the unpacking functions that it uses, by name."""
    writer = _SourceWriter()
    writer.line("def read(buf, unknown):")
    with writer.indented():
        writer.line(f"p = {SIZES[prefix]}")
        result = writer.struct(layout, part)
        with writer.block("if p != len(buf):"):
            writer.line("raise Rejected")
        writer.line(f"return {result}")
    return "\n".join(writer.lines) + "\n", writer.unpackers


def _entries(layout: StructLayout, variables: dict[str, str]) -> str:
    """Return the expression for a struct, from the variables of its fields."""
    entries = (f"{f.snake!r}: {variables.get(f.snake) or repr(f.default_value())}" for f in layout.fields)
    return f"{{{', '.join(entries)}}}"


def _fixed_size(field: FieldLayout) -> str:
    """Return the format codes of the elements of an array; "" unless they all have the same size in numbers."""
    kinds = [field.element] if field.struct is None else [one.type for one in field.struct.untagged]
    is_fixed = all(kind in CODES and kind != "uuid" for kind in kinds)
    return "".join(CODES[kind] for kind in kinds) if is_fixed else ""


class _SourceWriter:
    """The lines generated so far. Methods append code that reads something, and return the expression for its value."""

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

    def new_name(self, prefix: str) -> str:
        """Return an unused variable name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def struct(self, layout: StructLayout, path: str) -> str:
        variables: dict[str, str] = {}
        fixed_size: list[FieldLayout] = []
        for field in layout.untagged:
            if field.element in CODES and not field.is_array:
                fixed_size.append(field)
                continue
            self._fixed_size_fields(fixed_size, variables)
            fixed_size.clear()
            variables[field.snake] = self.field(field, f"{path}.{field.camel}", flexible=layout.flexible)
        self._fixed_size_fields(fixed_size, variables)
        if layout.flexible:
            self._tagged_fields(layout, variables, path)
        return _entries(layout, variables)

    def _fixed_size_fields(self, fields: list[FieldLayout], variables: dict[str, str]) -> None:
        """Read consecutive fixed-size fields with one call."""
        if not fields:
            return
        codes = "".join(CODES[field.element] for field in fields)
        names = [self.new_name("v") for _ in fields]
        self.unpackers[f"unpack_{codes}"] = Struct(">" + codes).unpack_from
        self.line(f"{', '.join(names)}, = unpack_{codes}(buf, p)")
        self.line(f"p += {calcsize('>' + codes)}")
        for field, name in zip(fields, names, strict=True):
            variables[field.snake] = f"uuid({name})" if field.element == "uuid" else name

    def field(self, field: FieldLayout, path: str, *, flexible: bool) -> str:
        """Read a single field of any type."""
        target = self.new_name("v")
        if not field.is_array:
            self._element(field, target, path, flexible=flexible, nullable=field.nullable)
        elif field.element in CODES and field.element != "uuid" and flexible:
            self._compact_numbers(field, target)
        elif not field.nullable and (codes := _fixed_size(field)) and not flexible:
            self._fixed_size_array(field, codes, target)
        else:
            self._array(field, target, path, flexible=flexible)
        return target

    def _element(self, field: FieldLayout, target: str, path: str, *, flexible: bool, nullable: bool) -> None:
        if field.element in CODES:
            variables: dict[str, str] = {}
            self._fixed_size_fields([field], variables)
            self.line(f"{target} = {variables[field.snake]}")
        elif field.struct is not None:
            self._struct_field(field, field.struct, target, path, nullable=nullable)
        elif flexible:
            self._compact_data(field.element, target, nullable=nullable)
        elif field.element == "string" and not nullable:
            self._string(target)
        else:
            self.line(f"{target}, p = fixed_{field.element}(buf, p, {nullable})")

    def _string(self, target: str) -> None:
        """Decode a string with a length of two bytes inline: every key has one."""
        self.line("n = buf[p] << 8 | buf[p + 1]")
        with self.block(f"if n > {MAX_STRING}:"):  # as int16 it is negative
            self.line("raise Rejected")
        self.line("e = p + 2 + n")
        self.line(f"{target} = buf[p + 2 : e].decode()")
        self.line("p = e")

    def _compact_data(self, element: str, target: str, *, nullable: bool) -> None:
        self.line("n = buf[p]")
        with self.block(f"if 0 < n <= {ONE_BYTE}:"):
            self.line("e = p + n")
            self.line(f"{target} = buf[p + 1 : e]{'.decode()' if element == 'string' else ''}")
            self.line("p = e")
        self._null_or_long(target, f"compact_{element}(buf, p)", nullable=nullable)

    def _null_or_long(self, target: str, call: str, *, nullable: bool) -> None:
        """Read null, or a value whose length `n` has several bytes."""
        if nullable:
            with self.block("elif not n:"):
                self.line(f"{target} = None")
                self.line("p += 1")
        with self.block("else:"):
            self.line(f"{target}, p = {call}")

    def _struct_field(
        self, field: FieldLayout, struct: StructLayout, target: str, path: str, *, nullable: bool
    ) -> None:
        if not nullable:
            self.line(f"{target} = {self.struct(struct, path)}")
            return
        self.line(f"{target} = None")
        self.line(f"present = is_present(buf[p], {0xFF if field.tag is None else 0})")
        self.line("p += 1")
        with self.block("if present:"):
            self.line(f"{target} = {self.struct(struct, path)}")

    def _compact_numbers(self, field: FieldLayout, target: str) -> None:
        code = CODES[field.element]
        table = f"unpack_array_{code}"
        self.unpackers[table] = generated_runtime.number_unpackers(code)
        self.line("n = buf[p]")
        with self.block(f"if 0 < n <= {ONE_BYTE}:"):
            self.line(f"{target} = [*{table}[n](buf, p + 1)]")
            size = SIZES[field.element]
            self.line(f"p += {size} * n - {size - 1}")
        self._null_or_long(target, f"compact_numbers(buf, p, {code!r})", nullable=field.nullable)

    def _fixed_size_array(self, field: FieldLayout, codes: str, target: str) -> None:
        """Read an array whose elements have one size, with a length of four bytes, with one call."""
        self.line("n, p = fixed_length(buf, p, 4, False)")
        self.line(f"e = p + {calcsize('>' + codes)} * (n - 1)")
        if field.struct is None:
            self.unpackers["unpack_from"] = unpack_from
            self.line(f'{target} = [*unpack_from(f">{{n - 1}}{codes}", buf, p)]')
        else:
            self.unpackers[f"each_{codes}"] = Struct(">" + codes).iter_unpack
            names = {one.snake: f"x{i}" for i, one in enumerate(field.struct.untagged)}
            element = _entries(field.struct, names)
            self.line(f"{target} = [{element} for {', '.join(names.values())}, in each_{codes}(buf[p:e])]")
        self.line("p = e")

    def _array(self, field: FieldLayout, target: str, path: str, *, flexible: bool) -> None:
        """Read an array element by element; the generated variable for its length holds length + 1."""
        length, i = self.new_name("n"), self.new_name("i")
        if flexible:
            self.line(f"{length} = buf[p]")
            self.line("p += 1")
        else:
            self.line(f"{length}, p = fixed_length(buf, p, 4, {field.nullable})")
        self.line(f"{target} = []")
        with self.block(f"if {length} != 1:"):
            self._null_or_long_array(field, target, length, flexible=flexible)
            with self.block(f"for {i} in range(1, {length}):"):
                element = self.new_name("v")
                self._element(field, element, f"{path}[{{{i} - 1}}]", flexible=flexible, nullable=False)
                self.line(f"{target}.append({element})")

    def _null_or_long_array(self, field: FieldLayout, target: str, length: str, *, flexible: bool) -> None:
        if field.nullable:
            with self.block(f"if not {length}:"):
                self.line(f"{target} = None")
        if flexible:
            head = f"elif {length} > {ONE_BYTE}:" if field.nullable else f"if not 0 < {length} <= {ONE_BYTE}:"
            with self.block(head):
                self.line(f"{length}, p = compact_length(buf, p - 1)")

    def _tagged_fields(self, layout: StructLayout, variables: dict[str, str], path: str) -> None:
        if not layout.tagged:
            with self.block("if buf[p]:"):
                self.line(f'p = unknown_tags(buf, p, unknown, f"{path}")')
            with self.block("else:"):
                self.line("p += 1")
            return
        for field in layout.tagged:
            variables[field.snake] = self.new_name("t")
            self.line(f"{variables[field.snake]} = {field.default_value()!r}")
        count, tag, end = self.new_name("n"), self.new_name("g"), self.new_name("e")
        self.line(f"{count} = buf[p]")
        self.line("p += 1")
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > {ONE_BYTE}:"):
                self.line(f"{count}, p = uvarint(buf, p - 1)")
            self.line(f"{tag} = -1")
            with self.block(f"for _ in range({count}):"):
                self.line(f"{tag}, p, {end} = tag_header(buf, p, {tag})")
                self._tagged_field(layout, variables, path, tag, end)

    def _tagged_field(self, layout: StructLayout, variables: dict[str, str], path: str, tag: str, end: str) -> None:
        keyword = "if"
        for field in layout.tagged:
            with self.block(f"{keyword} {tag} == {field.tag}:"):
                value = self.field(field, f"{path}.{field.camel}", flexible=True)
                self.line(f"{variables[field.snake]} = {value}")
                with self.block(f"if p != {end}:"):
                    self.line("raise Rejected")
            keyword = "elif"
        with self.block("else:"):
            self.line(f'unknown.append(UnknownTag(f"{path}", {tag}, bytes(buf[p:{end}])))')
            self.line(f"p = {end}")
