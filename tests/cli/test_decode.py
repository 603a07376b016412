"""`streams-groups decode`: its standard streams and its exit code."""

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


def decode(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [COMMAND, "decode", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, encoding="utf-8", timeout=MINUTES, check=False)


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
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one.get("error", {}).get("kind") for one in printed] == [None, *malformed, *unknown, None, None]
    assert printed[-2]["value"] is None


def test_a_byte_order_mark_is_no_part_of_the_first_record() -> None:
    ran = CliRunner().invoke(main, ["decode"], input="\ufeff" + GOOD)
    assert (ran.exit_code, ran.stdout) == (0, PRINTED)


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
