import pickle
import subprocess
import sys

import pytest

from offsets_decoder import MalformedRecord, UnknownRecordType, UnknownValueVersion, decode

DECODE_ONE = """
import sys
from offsets_decoder import decode
from offsets_decoder.definitions import record
decode(bytes.fromhex("0014000167"), bytes.fromhex("00000000000700"))
print("construct" in sys.modules, record.cache_info().currsize)
"""


def test_a_valid_record_is_decoded_without_construct_and_with_its_own_definition_only() -> None:
    result = subprocess.run([sys.executable, "-c", DECODE_ONE], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "1"]


@pytest.mark.parametrize(
    "error",
    [
        UnknownRecordType(24, "no"),
        UnknownValueVersion(17, "StreamsGroupMetadata", 1, "0"),
        MalformedRecord("bad", "value.epoch", 2),
    ],
)
def test_errors_can_be_pickled(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(copy), copy.args, str(copy), vars(copy)) == (type(error), error.args, str(error), vars(error))


def test_defaults_are_not_shared_between_records() -> None:
    first, second = (
        decode(bytes.fromhex("0011 0001 67"), bytes.fromhex("0000 00000002 0000000000000000 00")) for _ in "ab"
    )
    first.value["last_assignment_configs"].append("mine")
    first.unknown_tags.append("mine")
    assert (second.value["last_assignment_configs"], second.unknown_tags) == ([], [])
