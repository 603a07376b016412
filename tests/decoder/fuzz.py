"""A coverage-guided fuzz target (atheris) for the decoder; `make test` does not run it.

    pip install atheris
    python -m tests.decoder.fuzz -runs=10000000 [CORPUS_DIRECTORY]

An input is one byte of flags (the dialect, whether the record is a tombstone, whether text follows), then either a line
for `decode_lines`, or one byte for the length of the key, the key, and the value. The run fails on any exception of the
package that is not a DecodeError, on a different result of the generated readers and of interpreted Construct, on a
decoded record that cannot be printed as JSON or encoded again, and on a line that does not give one JSON object.

The reference decoder is twenty times slower than the generated readers. Every input goes through those, guided by their
coverage. Records that they read are decoded by the reference decoder too. For those that they reject, `decode` itself
calls the reference decoder: it must raise as well, or find an older layout.
"""

# ruff: noqa: S311 - a seeded Random is what makes a failure reproducible

import json
import sys
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["offsets_decoder"]):
    from offsets_decoder import DecodeError, decode, decode_lines, decoder, encode, reference_decode, to_json
    from offsets_decoder.generator import compile_reader

from tests.decoder.random_records import VARIANTS, random_record

DIALECTS = ("shipped", "kip-1331")
TOMBSTONE, TEXT = 2, 4


def test_one_input(data: bytes) -> None:
    if len(data) < 2:
        return
    dialect = DIALECTS[data[0] & 1]
    if data[0] & TEXT:
        check_line(data[1:].decode(errors="replace"), dialect)
        return
    end = 2 + data[1]
    check(data[2:end], None if data[0] & TOMBSTONE else data[end:], dialect)


def check_line(line: str, dialect: str) -> None:
    results = list(decode_lines([line], dialect=dialect))
    assert len(results) == bool(line.strip())
    for printed, decoded in results:
        text = json.dumps(printed, ensure_ascii=False).encode("utf-8", "backslashreplace")
        assert json.loads(text) == printed
        assert decoded == ("error" not in printed)


def check(key: bytes, value: bytes | None, dialect: str) -> None:
    fast_path = _fast_path_reads(key, value, dialect)
    try:
        record = decode(key, value, dialect=dialect)
    except DecodeError:
        assert not fast_path
        return
    assert fast_path == (record.layout is None)
    assert record == reference_decode(key, value, dialect=dialect)
    json.dumps(to_json(record))
    options = {"version": record.value_version, "dialect": dialect, "layout": record.layout}
    again = decode(*encode(record.record_type, record.key, record.value, **options), dialect=dialect)
    assert (again.key, again.value, again.layout) == (record.key, record.value, record.layout)


def _fast_path_reads(key: bytes, value: bytes | None, dialect: str) -> bool:
    """Return whether the generated readers read the record without the reference decoder."""
    try:
        readers = decoder._readers[dialect][key[:2]]
        readers.read_key(key, [])
        if value is not None:
            readers.values[value[:2]][1](value, [])
    except decoder._READ_ERRORS:
        return False
    return True


def seeds() -> list[bytes]:
    """Return inputs: one valid record of every variant, and one line in every form."""
    lines = [
        b"001700026731\t000000000001",
        rb"\x00\x17\x00\x02g1" + b"\t" + rb"\x00\x00\x00\x00\x00\x01",
        b'{"key":"001700026731","value":null}',
    ]
    inputs = [bytes((TEXT,)) + line for line in lines]
    for variant in VARIANTS:
        fields = random_record(Random(str(variant)), variant, max_length=5)
        key, value = encode(variant[0], *fields, version=variant[1], layout=variant[2])
        inputs.append(bytes((0, len(key))) + key + value)
    return inputs


def main() -> None:
    for corpus in (Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")):
        for number, seed in enumerate(seeds()):
            corpus.joinpath(f"seed-{number}").write_bytes(seed)
    # Readers are generated during the run: they have to be instrumented then.
    vars(decoder)["compile_reader"] = lambda layout, part: atheris.instrument_func(compile_reader(layout, part))
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
