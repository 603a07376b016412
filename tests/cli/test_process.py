"""A command's process ends with its exit code, and gives back what it frees, whichever allocator had it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import MINUTES
from tests.support.warehouses import make_warehouse

pytestmark = pytest.mark.slow

MOST_MEGABYTES = 100
_FREES = """
import gc, sys, tempfile
from streaming_app.cli.main import main
main([], standalone_mode=False)
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

def anonymous():
    for line in open("/proc/self/smaps_rollup"):
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) // 1024

def arrow(size):
    for _ in range(3):
        kept = [pa.array(["x" * 30_000] * 50) for _ in range(size)]
        del kept

def delta(size):
    with tempfile.TemporaryDirectory() as directory:
        write_deltalake(directory, pa.table({"n": range(size), "text": ["%d" % n * 6_000 for n in range(size)]}))
        found = QueryBuilder().register("t", DeltaTable(directory))
        for _ in range(3):
            pa.table(found.execute("SELECT * FROM t ORDER BY text"))

work = {"arrow": arrow, "delta": delta}[sys.argv[1]]
work(1)  # what is loaded once
before = anonymous()
work(int(sys.argv[2]))
for _ in range(100):  # allocators give back what threads have freed some time later, while the process goes on
    work(1)
    gc.collect()
    if (left := anonymous() - before) < int(sys.argv[3]):
        break
print(left)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux, which counts memory there")
@pytest.mark.parametrize(("what", "size"), [("arrow", 150), ("delta", 3_000)])
def test_what_libraries_free_is_given_back(what: str, size: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FREES, what, str(size), str(MOST_MEGABYTES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < MOST_MEGABYTES


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
