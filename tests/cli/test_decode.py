"""`streams-groups decode`: as a process, its standard streams and its exit code; in this one, what it reads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from tests.support.waiting import MINUTES

COMMAND = Path(sys.executable).with_name("streams-groups")
KEY_20, VALUE_20 = "0014000167", "00000000000700"
GOOD = f"{KEY_20}\t{VALUE_20}\n"
PRINTED = '{"key":{"type":20,"data":{"groupId":"g"}},"value":{"version":0,"data":{"assignmentEpoch":7}}}\n'
# Tag 3 is "failed" in Kafka's releases and "stored" in the text of KIP-1331.
KEY_17, VALUE_17 = "0011000167", "0000000000020000000000000000010304" + "00000005"


def decode(*arguments: object, stdin: bytes | str = b"") -> subprocess.CompletedProcess[str]:
    """Run the command; check that its output is UTF-8 and contains no traceback."""
    result = subprocess.run(
        [COMMAND, "decode", *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=MINUTES,
        check=False,
    )
    assert b"Traceback" not in result.stderr
    return subprocess.CompletedProcess(result.args, result.returncode, result.stdout.decode(), result.stderr.decode())


def decode_here(*arguments: object, stdin: bytes | str = b"") -> subprocess.CompletedProcess[str]:
    """Run the command in this process: where only what it reads and says matters, not whose streams it has."""
    ran = CliRunner().invoke(main, ["decode", *map(str, arguments)], input=stdin)
    assert ran.exception is None or isinstance(ran.exception, SystemExit)
    return subprocess.CompletedProcess(arguments, ran.exit_code, ran.stdout_bytes.decode(), ran.stderr)


def error_kinds(output: str) -> list[str | None]:
    return [json.loads(line).get("error", {}).get("kind") for line in output.splitlines()]


@pytest.mark.parametrize("source", ["a file", "stdin", "a dash"])
def test_a_record_is_read_from_a_file_or_stdin(source: str, tmp_path: Path) -> None:
    file = tmp_path / "records.tsv"
    file.write_text(GOOD)

    result = decode(file) if source == "a file" else decode(*["-"] * (source == "a dash"), stdin=GOOD)

    assert (result.returncode, result.stdout, result.stderr) == (0, PRINTED, "")


def test_lines_are_printed_in_order_with_errors_between_them_and_the_exit_code_is_1() -> None:
    result = decode(stdin=f"{GOOD}hello world\n{KEY_20}\t{VALUE_20}00\n0018\t00\n{KEY_20}\t0001\n\n{KEY_20}\t\n{GOOD}")
    malformed, unknown = ["MalformedRecord"] * 2, ["UnknownRecordType", "UnknownValueVersion"]
    assert (result.returncode, result.stderr) == (1, "")
    assert error_kinds(result.stdout) == [None, *malformed, *unknown, None, None]
    assert json.loads(result.stdout.splitlines()[-2])["value"] is None


def test_a_byte_order_mark_is_no_part_of_the_first_record() -> None:
    result = decode_here(stdin="\ufeff" + GOOD)
    assert (result.returncode, result.stdout) == (0, PRINTED)


def test_a_reader_that_closes_the_pipe_is_not_an_error(tmp_path: Path) -> None:
    file = tmp_path / "records.tsv"
    file.write_text(GOOD * 20_000)
    with subprocess.Popen([COMMAND, "decode", file], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().decode() == PRINTED
        process.stdout.close()
        stderr = process.stderr.read()

    assert stderr == b""
