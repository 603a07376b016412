"""`streams-groups decode` as a user runs it: a process of its own, its standard streams and its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offsets_decoder import SHIPPED, dialects

COMMAND = Path(sys.executable).with_name("streams-groups")
KEY_20, VALUE_20 = "0014000167", "00000000000700"
GOOD = f"{KEY_20}\t{VALUE_20}\n"
PRINTED = '{"key":{"type":20,"data":{"groupId":"g"}},"value":{"version":0,"data":{"assignmentEpoch":7}}}\n'
# Tag 3 is "failed" to Kafka's releases and "stored" to the text of KIP-1331.
KEY_17, VALUE_17 = "0011000167", "0000000000020000000000000000010304" + "00000005"


def decode(*arguments: object, given: bytes | str = b"", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command; what it writes must be UTF-8 and no traceback, whatever it was given."""
    ran = subprocess.run(
        [COMMAND, "decode", *map(str, arguments)],
        input=given.encode() if isinstance(given, str) else given,
        capture_output=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )
    assert b"Traceback" not in ran.stderr
    return subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def kinds(printed: str) -> list[str | None]:
    """Per line the kind of its error, or None."""
    return [json.loads(line).get("error", {}).get("kind") for line in printed.splitlines()]


@pytest.mark.parametrize("source", ["a file", "stdin", "a dash"])
def test_a_record_is_read_from_a_file_or_stdin(source: str, tmp_path: Path) -> None:
    file = tmp_path / "records.tsv"
    file.write_text(GOOD)

    ran = decode(file) if source == "a file" else decode(*["-"] * (source == "a dash"), given=GOOD)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, PRINTED, "")


def test_good_lines_come_out_in_order_between_bad_ones_and_the_exit_code_is_1() -> None:
    ran = decode(given=f"{GOOD}hello world\n{KEY_20}\t{VALUE_20}00\n0018\t00\n{KEY_20}\t0001\n\n{KEY_20}\t\n{GOOD}")

    assert (ran.returncode, ran.stderr) == (1, "")
    assert kinds(ran.stdout) == [
        None,
        "MalformedRecord",
        "MalformedRecord",
        "UnknownRecordType",
        "UnknownValueVersion",
        None,
        None,
    ]
    assert json.loads(ran.stdout.splitlines()[-2])["value"] is None


@pytest.mark.parametrize("given", [b"", b"\n", b"\r\n\r\n", b"\xef\xbb\xbf"], ids=repr)
def test_nothing_given_is_nothing_printed_and_no_failure(given: bytes) -> None:
    ran = decode(given=given)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "given",
    [
        GOOD.replace("\n", "\r\n"),
        GOOD.rstrip("\n"),
        "\ufeff" + GOOD,
        rf"\x00\x14\x00\x01g{chr(9)}\x00\x00\x00\x00\x00\x07\x00",
        json.dumps({"key": KEY_20, "value": VALUE_20}),
    ],
    ids=["CRLF", "no newline at the end", "a byte order mark", "console consumer", "JSON"],
)
def test_a_record_is_read_in_whatever_form_it_is_given(given: str) -> None:
    ran = decode(given=given)

    assert (ran.returncode, ran.stdout) == (0, PRINTED)


@pytest.mark.parametrize(
    "given",
    [
        bytes(range(256)),
        b"\xff\xfe" + GOOD.encode("utf-16-le"),
        b"\0",
        b"\t00",
        "zz" * 1_000_000,
        "{" * 1_000_000,
        '{"key": "\\ud800", "value": "\\udfff"}',
        '{"key": 1e400}',
        "\\",
        "Option --property is deprecated and will be removed in a future version.",
    ],
    ids=lambda given: repr(given[:20]),
)
def test_text_that_is_no_record_is_an_error_object_each_line(given: bytes | str) -> None:
    ran = decode(given=given)

    assert (ran.returncode, ran.stderr) == (1, "")
    assert set(kinds(ran.stdout)) == {"MalformedRecord"}


def test_a_value_of_a_megabyte_is_read() -> None:
    ran = decode(given=f"{KEY_17}\t00000000000200000000000000000109c0843d" + "00" * 1_000_000)

    assert ran.returncode == 0
    assert len(json.loads(ran.stdout)["unknownTags"][0]["data"]) == 2_000_000


@pytest.mark.parametrize(
    ("dialect", "field"),
    [("shipped", "failedDescriptionTopologyEpoch"), ("kip-1331", "storedDescriptionTopologyEpoch")],
)
def test_the_dialect_says_what_a_tag_means(dialect: str, field: str) -> None:
    ran = decode("--dialect", dialect, given=f"{KEY_17}\t{VALUE_17}")

    data: dict[str, Any] = json.loads(ran.stdout)["value"]["data"]
    assert data == {"epoch": 2, "metadataHash": 0, field: 5}


def test_the_help_names_every_dialect() -> None:
    said = decode("--help").stdout

    assert [name for name in (SHIPPED, *dialects()) if name not in said] == []


def test_a_dialect_that_nobody_defined_is_wrong_usage() -> None:
    ran = decode("--dialect", "kip-1332", given=GOOD)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[-1] == (
        "Error: Invalid value for --dialect: no dialect 'kip-1332'; there are shipped, kip-1331"
    )


@pytest.mark.parametrize(("name", "why"), [("nowhere", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_opened_is_wrong_usage_and_says_why(name: str, why: str, tmp_path: Path) -> None:
    ran = decode(tmp_path / name)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[-1] == f"Error: Invalid value for '[FILE]': '{tmp_path / name}': {why}"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that opens and cannot be read: Linux has one")
def test_a_file_that_cannot_be_read_is_one_line() -> None:
    ran = decode("/proc/self/mem")

    assert (ran.returncode, ran.stdout, ran.stderr) == (
        1,
        "",
        "Error: Cannot go on: Input/output error\n",
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full: Linux has one")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run([COMMAND, "decode"], input=GOOD.encode(), stdout=full, stderr=subprocess.PIPE, check=False)

    assert (ran.returncode, ran.stderr) == (1, b"Error: Cannot go on: No space left on device\n")


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "records.tsv"
    file.write_text(GOOD * 20_000)
    with subprocess.Popen([COMMAND, "decode", file], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().decode() == PRINTED
        running.stdout.close()
        said = running.stderr.read()

    assert said == b""


def test_what_is_printed_is_utf_8_whatever_the_terminal_is() -> None:
    ran = decode(given="00140002c3a9", PYTHONIOENCODING="ascii", LC_ALL="C")

    assert json.loads(ran.stdout)["key"]["data"] == {"groupId": "é"}
    assert "é" in ran.stdout


def test_a_standard_input_that_is_closed_is_wrong_usage_and_says_so() -> None:
    ran = subprocess.run(["sh", "-c", 'exec "$0" decode <&-', COMMAND], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[-1].startswith("Error: Invalid value for '[FILE]': standard input is closed; ")
