"""A process ends with its exit code while its threads are inside delta-rs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import MINUTES
from tests.support.warehouses import make_warehouse

_PROGRAM = """
import sys, threading
from deltalake import DeltaTable
from streaming_app.cli.options import handle_errors
from streaming_app.errors import JobError

is_reading = threading.Event()

def read():
    while True:
        DeltaTable(sys.argv[1]).to_pyarrow_table()
        is_reading.set()

@handle_errors
def command():
    threading.Thread(target=read, daemon=True).start()
    is_reading.wait()
    print("done")
    {end}

command()
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [("pass", 0), ("raise SystemExit(3)", 3), ("raise SystemExit", 0), ('raise JobError("it failed")', 1)],
)
def test_a_thread_inside_delta_rs_does_not_crash_the_end(tmp_path: Path, end: str, code: int) -> None:
    command = [sys.executable, "-c", _PROGRAM.format(end=end), make_warehouse(tmp_path) / "alerts"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MINUTES)
    assert (ended.returncode, ended.stdout) == (code, "done\n")


def test_a_command_whose_threads_have_ended_ends_as_python_does(tmp_path: Path) -> None:
    ending = "threading.enumerate()[1].running = False; import atexit; atexit.register(print, 'at exit')"
    program = _PROGRAM.replace("while True:", "while threading.current_thread().__dict__.get('running', True):")
    program = program.format(end=f"{ending}; threading.enumerate()[1].join()")
    command = [sys.executable, "-c", program, make_warehouse(tmp_path) / "alerts"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MINUTES)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\nat exit\n", "")
