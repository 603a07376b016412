"""`streams-groups decode`: records given as text, to JSON. It needs neither a warehouse nor a broker."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

import click

from streaming_app.cli.options import explained, spelled


class _Lines(click.File):
    """A file of text. Click takes a standard input that is closed for one that is open."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        if value == "-" and sys.stdin is None:
            self.fail("standard input is closed; name a file, or give records to standard input", param, ctx)
        return super().convert(value, param, ctx)


@click.command()
@click.argument("file", type=_Lines("r", encoding="utf-8-sig", errors="replace"), default="-")
@spelled
@explained
def decode(file: TextIO, dialect: str) -> None:
    """Decode records in FILE or stdin to JSON, one object a line.

    A line is KEYHEX<TAB>VALUEHEX, an empty value or null being a tombstone, or what kafka-console-consumer.sh prints
    with print.key=true and BytesDeserializer as its key and value deserializers. Exits with 1 if a line could not be
    decoded; its object says why.
    """
    from offsets_decoder import UnknownDialectError, decode_lines  # noqa: PLC0415 - --help needs none of it

    try:
        found = decode_lines(file, dialect=dialect)
    except UnknownDialectError as error:
        raise click.BadParameter(str(error), param_hint="--dialect") from None
    all_good = True
    for decoded, good in found:
        # JSON is UTF-8 whatever the terminal's encoding; half a surrogate pair stays the escape that it came in as.
        text = json.dumps(decoded, ensure_ascii=False, separators=(",", ":"))
        click.echo(text.encode("utf-8", "backslashreplace"))
        all_good &= good
    sys.exit(0 if all_good else 1)
