"""A command's process ends with its exit code, whatever its threads do."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import MINUTES
from tests.support.warehouses import make_warehouse

pytestmark = pytest.mark.slow


_READS = """
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
    command = [sys.executable, "-c", _READS.format(end=end), make_warehouse(tmp_path) / "alerts"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MINUTES)
    assert (ended.returncode, ended.stdout) == (code, "done\n")
