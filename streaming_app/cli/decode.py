"""The command `decode`: converts records from text to JSON. It needs neither a warehouse nor a broker."""

import json
import sys
from typing import Any, TextIO

import click

from streaming_app.cli.options import handle_errors
from streaming_app.text import escape_json


class _TextFile(click.File):
    """A text file. Rejects a closed standard input, which click would accept."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        if value == "-" and sys.stdin is None:
            self.fail("standard input is closed; name a file, or pass records on standard input", param, ctx)
        return super().convert(value, param, ctx)


@click.command(short_help="Decode records to JSON.")
@click.argument("file", type=_TextFile("r", encoding="utf-8-sig", errors="replace"), default="-")
@handle_errors
def decode(file: TextIO) -> None:
    """Decode records in FILE or stdin to JSON, one object a line.

    A line is KEYHEX<TAB>VALUEHEX, where an empty value or null is a tombstone, or what kafka-console-consumer.sh prints
    with print.key=true and BytesDeserializer as its key and value deserializers. Exits with 1 if a line could not be
    decoded; its object contains the error.

    "decoded" is what Kafka prints as base64: what members of classic groups of consumers, such as Kafka Streams, sent.
    """
    from offsets_decoder import decode_lines  # noqa: PLC0415 - not loaded by --help

    all_decoded = True
    for result, is_decoded in decode_lines(file):
        # JSON is UTF-8 in every locale. Control characters and unpaired surrogates are escaped.
        text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
        click.echo(escape_json(text).encode())
        all_decoded &= is_decoded
    sys.exit(0 if all_decoded else 1)
