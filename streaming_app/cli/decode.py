"""`streams-groups decode`: records given as text, to JSON. It needs neither a warehouse nor a broker."""

from __future__ import annotations

import json
import sys
from typing import TextIO

import click


@click.command()
@click.argument("file", type=click.File("r", encoding="utf-8-sig", errors="replace"), default="-")
@click.option(
    "--dialect",
    default="shipped",
    show_default=True,
    metavar="NAME",
    help="Tag numbers: shipped (what Kafka released) or kip-1331 (the text of that KIP).",
)
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
    try:
        for decoded, good in found:
            # JSON is UTF-8 whatever the terminal's encoding; half a surrogate pair stays the escape that it came in as.
            text = json.dumps(decoded, ensure_ascii=False, separators=(",", ":"))
            click.echo(text.encode("utf-8", "backslashreplace"))
            all_good &= good
    except BrokenPipeError:
        raise  # click ends quietly
    except OSError as error:
        raise click.ClickException(f"Cannot go on: {error.strerror}") from None
    sys.exit(0 if all_good else 1)
