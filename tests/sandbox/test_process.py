import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streaming_app.sandbox.child_process import Process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

IGNORES_SIGTERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('started', flush=True); time.sleep(6000)"
)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_program_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    process = Process(python(IGNORES_SIGTERM), tmp_path / "log", grace_seconds=0.3)
    assert wait_until(lambda: "started" in (tmp_path / "log").read_text(), interval=0.01)
    started = time.monotonic()
    process.stop()
    assert process.exit_code == 128 + signal.SIGKILL
    assert time.monotonic() - started >= 0.3  # noqa: WAIT001 - the least: a slow machine takes longer


@pytest.mark.parametrize(
    "exit_statement", ["os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)", "os._exit(1)", "pass"]
)
def test_the_program_is_terminated_however_its_parent_exits(exit_statement: str, tmp_path: Path) -> None:
    parent = f"""
import os, pathlib, sys
from streaming_app.sandbox.child_process import Process, reserve_port
from tests.support.waiting import MINUTES, wait_until
process = Process([sys.executable, "-c", "import time; time.sleep(600)"], pathlib.Path({str(tmp_path / "log")!r}))
print(process.pid, flush=True)
{exit_statement}
"""
    pid = int(subprocess.run(python(parent), stdout=subprocess.PIPE, check=False).stdout)
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists())
