import pickle
import subprocess
import sys

import pytest

import offsets_decoder
from offsets_decoder import EncodeError, MalformedRecord, UnknownRecordType, UnknownValueVersion, decode

DECODE_ONE = (
    "from offsets_decoder import decode; import sys;"
    "decode(bytes.fromhex('0014000167'), bytes.fromhex('00000000000700'))"
)


def test_construct_is_not_imported_to_decode_a_valid_record() -> None:
    result = subprocess.run(
        [sys.executable, "-c", f"{DECODE_ONE}; print('construct' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stdout.strip() == "False"


def test_only_the_definition_that_is_needed_is_loaded() -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{DECODE_ONE}; from offsets_decoder.definitions import record; print(record.cache_info().currsize)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stdout.strip() == "1"


@pytest.mark.parametrize(
    "error",
    [
        UnknownRecordType(24, "no"),
        UnknownValueVersion(17, "StreamsGroupMetadata", 1, "0"),
        MalformedRecord("bad", "value.epoch", 2),
        EncodeError("no"),
    ],
)
def test_errors_can_be_pickled(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes

    assert (type(copy), copy.args, str(copy), vars(copy)) == (type(error), error.args, str(error), vars(error))


def test_a_record_can_be_pickled() -> None:
    record = decode(bytes.fromhex("0011 0001 67"), bytes.fromhex("0000 00000002 0000000000000000 01 09 01 aa"))

    assert pickle.loads(pickle.dumps(record)) == record  # noqa: S301


def test_defaults_are_not_shared_between_records() -> None:
    first, second = (
        decode(bytes.fromhex("0011 0001 67"), bytes.fromhex("0000 00000002 0000000000000000 00")) for _ in "ab"
    )

    first.value["last_assignment_configs"].append("mine")
    first.unknown_tags.append("mine")

    assert (second.value["last_assignment_configs"], second.unknown_tags) == ([], [])


def test_a_record_accepts_no_other_attributes() -> None:
    record = decode(bytes.fromhex("0011 0001 67"), None)

    with pytest.raises(AttributeError):
        record.other = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", offsets_decoder.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    public = getattr(offsets_decoder, name)

    assert isinstance(public, str) or public.__doc__


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        offsets_decoder.nonsense  # noqa: B018
