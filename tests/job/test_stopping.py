"""Signals end a job in whatever state it is; each test runs a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import threading, time
from streaming_app.job import stopping

stopping._TERMINATE_SECONDS, stopping.STOP_SECONDS = 1.0, 2.0
stop = threading.Event()

class Jvm:
    def terminate(self): print("terminated", flush=True)
    def kill(self): print("killed", flush=True)

def until_stopped():
    print("running", flush=True)
    stop.wait()
    print("ended", flush=True)

def for_ever():
    print("running", flush=True)
    time.sleep(600)

def failing():
    raise ValueError("broken")

stopping.run_until_signal({job}, stop, lambda line: print(line, flush=True), Jvm())
print("returned", flush=True)
"""


def run(job: str, *signals: signal.Signals) -> tuple[int, list[str]]:
    """Return exit code and lines of a program that gets these signals."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(job=job)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        for number in signals:
            process.send_signal(number)
            time.sleep(0.3)
        rest = process.communicate(timeout=60)[0].split()
    return process.returncode, [first, *rest]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_reported_at_once_and_the_job_ends_by_itself(number: signal.Signals) -> None:
    code, words = run("until_stopped", number)
    assert (code, words) == (0, ["running", "Stopping", "...", "ended", "returned"])


def test_a_job_that_does_not_end_is_abandoned_with_its_jvm() -> None:
    code, words = run("for_ever", signal.SIGTERM)
    assert (code, words) == (0, ["running", "Stopping", "...", "terminated", "killed"])


def test_a_second_signal_ends_the_job_at_once() -> None:
    code, words = run("for_ever", signal.SIGTERM, signal.SIGTERM)
    assert (code, words) == (0, ["running", "Stopping", "...", "killed"])  # without the time to terminate


def test_an_error_of_the_job_is_raised_in_the_main_thread() -> None:
    program = PROGRAM.format(job="failing")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    assert ran.stderr.rstrip().endswith("ValueError: broken")
