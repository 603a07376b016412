"""A coverage-guided fuzz target (atheris) for the decoder; `make test` does not run it.

    pip install atheris
    python -m tests.decoder.fuzz -runs=10000000 [CORPUS_DIRECTORY]

An input is one byte that says which dialect, whether the record is a tombstone and whether text follows; then either a
line for `decode_lines`, or one byte for the length of the key, the key, and the value. Anything that leaves the package
and is not a DecodeError ends the run; so does a record or an error that the generated readers and interpreted Construct
do not agree on, a decoded record that cannot be printed as JSON or built again, and a line that is not one JSON object.

The referee costs twenty times what it judges. Every input goes through the generated readers, guided by their coverage;
what they take goes to the referee too, and of what they refuse (which the referee worded already) nothing is left to
compare, but that the readers alone and the whole of `decode` say the same.
"""

# ruff: noqa: S311 - a seeded Random is what makes a failure come back

import json
import sys
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["offsets_decoder"]):
    from offsets_decoder import DecodeError, decode, decode_lines, encode, reference_decode, to_json
    from offsets_decoder import decoder as fast
    from offsets_decoder.generator import reader_of

from tests.decoder.random_records import KINDS, random_record

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
    found = list(decode_lines([line], dialect=dialect))
    assert len(found) == bool(line.strip())
    for printed, good in found:
        text = json.dumps(printed, ensure_ascii=False).encode("utf-8", "backslashreplace")
        assert json.loads(text) == printed
        assert good == ("error" not in printed)


def check(key: bytes, value: bytes | None, dialect: str) -> None:
    taken = _taken(key, value, dialect)
    try:
        record = decode(key, value, dialect=dialect)
    except DecodeError:
        assert not taken
        return
    assert taken == (record.layout is None)
    assert record == reference_decode(key, value, dialect=dialect)
    json.dumps(to_json(record))
    fields = {"version": record.value_version, "dialect": dialect, "layout": record.layout}
    again = decode(*encode(record.record_type, record.key, record.value, **fields), dialect=dialect)
    assert (again.key, again.value, again.layout) == (record.key, record.value, record.layout)


def _taken(key: bytes, value: bytes | None, dialect: str) -> bool:
    """Whether the generated readers alone take the record."""
    try:
        plan = fast._plans[dialect][key[:2]]
        plan.read_key(key, [])
        if value is not None:
            plan.values[value[:2]][1](value, [])
    except fast._REFUSALS:
        return False
    return True


def seeds() -> list[bytes]:
    """One good record of every kind, as an input, and one line in every form."""
    lines = [
        b"001700026731\t000000000001",
        rb"\x00\x17\x00\x02g1" + b"\t" + rb"\x00\x00\x00\x00\x00\x01",
        b'{"key":"001700026731","value":null}',
    ]
    inputs = [bytes((TEXT,)) + line for line in lines]
    for kind in KINDS:
        fields = random_record(Random(str(kind)), kind, longest=5)
        key, value = encode(kind[0], *fields, version=kind[1], layout=kind[2])
        inputs.append(bytes((0, len(key))) + key + value)
    return inputs


def main() -> None:
    for corpus in (Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")):
        for number, seed in enumerate(seeds()):
            corpus.joinpath(f"seed-{number}").write_bytes(seed)
    # The readers are made while running: what guides the fuzzer has to be put into them then.
    fast.reader_of = lambda shape, part: atheris.instrument_func(reader_of(shape, part))
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
