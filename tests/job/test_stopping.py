"""Signals end a job in whatever state it is; each test runs a process of its own."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal, sys, threading, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
from streaming_app.job import stopping
from streaming_app.threads import in_parallel

stopping._SAY_SECONDS, stopping._TERMINATE_SECONDS = 600.0, float(sys.argv[1])
stopping.STOP_SECONDS = stopping._TERMINATE_SECONDS + 0.1
stop = threading.Event()

class Jvm:
    killed = threading.Event()
    def terminate(self): print("terminated", flush=True)
    def kill(self):
        print("killed", flush=True)
        self.killed.set()

def until_stopped():
    print("running", flush=True)
    stop.wait()
    print("ended", flush=True)

def in_this_thread():
    stop.wait(2)  # by then the main thread waits
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    stop.wait(600)
    print("ended", flush=True)

def fail():
    print("running", flush=True)
    stop.wait()
    raise OSError("of a job that is ending")

def fail_at_the_signal():
    # As when the signal ends the JVM, too: the main thread notices both at once.
    stop.wait(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    raise OSError("before anything has noticed the signal")

def end_when_killed():
    print("running", flush=True)
    Jvm.killed.wait()
    print("ended", flush=True)

def for_ever():
    print("running", flush=True)
    time.sleep(600)

def for_ever_in_a_pool():
    in_parallel(lambda _: for_ever(), [1], 2)

stopping._KILLED_SECONDS = 600.0 if {job} is end_when_killed else 0.1
stopping.run_until_signal({job}, stop, lambda line: print(line, flush=True), Jvm())
print("returned", flush=True)
"""
PATIENT, IMPATIENT = 600.0, 0.1
"""Seconds until a job that does not end by itself is abandoned."""


def run(job: str, *signals: signal.Signals, patience: float = PATIENT) -> tuple[int, list[str]]:
    """Return exit code and lines of a program that gets these signals, each after it has said another line."""
    command = [sys.executable, "-c", PROGRAM.format(job=job), str(patience)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for number in signals:
            lines.append(process.stdout.readline().strip())
            process.send_signal(number)
        lines += process.stdout.read().splitlines()
    return process.returncode, lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_reported_at_once_and_the_job_ends_by_itself(number: signal.Signals) -> None:
    assert run("until_stopped", number) == (0, ["running", "Stopping ...", "ended", "returned"])


@pytest.mark.slow
def test_a_signal_that_the_kernel_gives_to_another_thread_ends_the_job() -> None:
    assert run("in_this_thread") == (0, ["Stopping ...", "ended", "returned"])


def test_an_error_of_a_job_that_is_ending_is_not_reported() -> None:
    assert run("fail", signal.SIGTERM) == (0, ["running", "Stopping ...", "Stopped.", "returned"])
    code, lines = run("fail_at_the_signal")
    assert (code, lines[-2:]) == (0, ["Stopped.", "returned"])


@pytest.mark.parametrize("job", ["for_ever", "for_ever_in_a_pool"])
def test_a_job_that_does_not_end_is_abandoned_with_its_jvm(job: str) -> None:
    lines = run(job, signal.SIGTERM, patience=IMPATIENT)
    assert lines == (0, ["running", "Stopping ...", "terminated", "killed", "Stopped."])


def test_a_job_that_ends_with_its_jvm_says_so_itself() -> None:
    lines = run("end_when_killed", signal.SIGTERM, patience=IMPATIENT)
    assert lines == (0, ["running", "Stopping ...", "terminated", "killed", "ended"])


def test_a_second_signal_ends_the_job_at_once() -> None:
    lines = run("for_ever", signal.SIGTERM, signal.SIGTERM)
    assert lines == (0, ["running", "Stopping ...", "killed", "Stopped."])  # without the time to terminate
