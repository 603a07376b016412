"""Faults of the job's processes: killed, stopped, started twice, and failures of what they write."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from tests.long.faults.harness import STOPPED_SECONDS, FaultHarness, UnexpectedError
from tests.support.processes import is_running, process_state, send_signal
from tests.support.waiting import wait_until

_EXIT_SECONDS = 300.0
_RETRY_SOON = "from tests.long.faults.injected import retry_soon; retry_soon(); "


def kill_job(harness: FaultHarness) -> None:
    """Kill the process that a user started, at any moment, also while it starts."""

    def kill() -> None:
        kill_running(harness)
        harness.start_job()

    _repeat(harness, kill)


def kill_running(harness: FaultHarness) -> None:
    """Kill the process that a user started, which runs."""
    pid = harness.job.pid
    harness.kill_job()
    harness.expect(pid is not None and not is_running(pid))


def kill_tree(harness: FaultHarness) -> None:
    """Kill all processes of the job at once."""

    def kill() -> None:
        harness.killed_at = time.monotonic()
        pids = harness.job.pids()
        harness.job.kill_tree()
        harness.expect(bool(pids) and (lambda: not any(map(is_running, pids))))
        harness.start_job()

    _repeat(harness, kill)


def kill_jvm(harness: FaultHarness) -> None:
    """Kill Spark's JVM: the job says so and ends."""

    def kill() -> None:
        harness.killed_at = time.monotonic()
        jvms = harness.job.jvms()
        if error := harness.job.kill_jvm():
            raise UnexpectedError(error)
        harness.expect(bool(jvms) and not any(map(is_running, jvms)))
        harness.start_job()

    _repeat(harness, kill)


def terminate(harness: FaultHarness) -> None:
    """Stop the job as a service manager does, at any moment."""

    def stop() -> None:
        harness.killed_at = time.monotonic()
        pid = harness.job.pid
        if error := harness.job.terminate():
            raise UnexpectedError(error)
        harness.expect(pid is not None and not is_running(pid))
        harness.start_job()

    _repeat(harness, stop)


def _repeat(harness: FaultHarness, fault: Callable[[], None]) -> None:
    """Cause the fault once or several times, each time while the job starts again."""
    harness.wait_before()
    for number in range(harness.times()):
        if number:
            harness.operate(harness.seconds(0, 1.2) * harness.start_seconds)
            harness.ensure_running()
        fault()


def kill_worker(harness: FaultHarness) -> None:
    """Kill the Python workers of Spark, some times: the job goes on by itself."""
    harness.kill_job()
    retries_soon = harness.random.random() < 0.8  # else it gives up at the fourth failure, and is started again
    harness.start_job_for_workers(_RETRY_SOON if retries_soon else "")
    harness.wait_before()  # which ends at once where a job that has just been started has nothing to read
    until = time.monotonic() + _EXIT_SECONDS
    while not (harness.job.workers() or harness.job.unexpected_exit) and time.monotonic() < until:
        harness.operate(0.3)  # there is none before the first batch
    killed: list[int] = []
    for _ in range(harness.random.randrange(5, 16)):
        harness.killed_at = time.monotonic()
        workers = harness.job.workers()
        send_signal(signal.SIGKILL, workers)
        killed += workers
        harness.operate(harness.seconds(0, 2))
    harness.expect(bool(killed) and (lambda: not any(map(is_running, killed))))


def stop_job(harness: FaultHarness) -> None:
    """Stop all processes of the job, or one of them, for longer than sessions, and continue them."""
    harness.wait_before()
    pids = harness.job.pids()
    stopped = pids if harness.random.random() < 0.5 else [harness.pick(pids)]
    send_signal(signal.SIGSTOP, stopped)
    harness.expect(bool(stopped) and (lambda: all(process_state(pid) == "T" for pid in stopped)))
    harness.operate(STOPPED_SECONDS)
    send_signal(signal.SIGCONT, stopped)


def jvm_outlives_job(harness: FaultHarness) -> None:
    """Stop the JVM, kill the job, start another one, and continue the old JVM in the middle of what it did."""
    harness.wait_before()
    jvms = harness.job.jvms()
    send_signal(signal.SIGSTOP, jvms)
    harness.kill_job_only()
    harness.expect(bool(jvms) and (lambda: all(process_state(pid) == "T" for pid in jvms)))
    harness.start_job()
    harness.operate_during_start()
    send_signal(signal.SIGCONT, jvms)
    if not wait_until(lambda: not any(map(is_running, jvms)), _EXIT_SECONDS):
        send_signal(signal.SIGKILL, jvms)
        raise UnexpectedError(f"the JVM of a job that was killed still runs after {_EXIT_SECONDS:.0f} s")


def two_starts(harness: FaultHarness) -> None:
    """Start more jobs while one runs, or all of them at once: one goes on, the others say why they end."""
    if harness.random.random() < 0.5:
        harness.kill_job()
        harness.start_job()
    jobs = [harness.job]
    for _ in range(harness.random.randint(1, 3)):
        jobs.append(harness.new_job())
        jobs[-1].start()

    def running() -> int:
        return sum(not job.unexpected_exit for job in jobs)

    try:
        wait_until(lambda: running() <= 1, _EXIT_SECONDS)
        harness.job = next((job for job in jobs if not job.unexpected_exit), jobs[0])
        others = [job for job in jobs if job is not harness.job]
        outputs = [job.output for job in others if "Another job already writes" not in job.output]
        if outputs or running() != 1:
            raise UnexpectedError(f"{running()} of {len(jobs)} jobs run: {[one[-500:] for one in outputs]}")
        harness.expect(len(others) == len(jobs) - 1)  # each of which says that there is another one
    finally:
        for job in jobs:
            if job is not harness.job:
                job.close()


def kill_at_write(harness: FaultHarness) -> None:
    """Start the job so that it kills itself before or after one of its first writes, some times in a row."""
    for _ in range(harness.times(5)):
        harness.kill_job()
        number, after = harness.random.randrange(1, 25), harness.random.random() < 0.5
        harness.start_job(setup=f"from tests.long.faults.injected import kill_at; kill_at({number}, after={after}); ")
        until = time.monotonic() + 2 * harness.start_seconds
        while not harness.job.unexpected_exit and time.monotonic() < until:
            harness.operate(0.3)
        harness.expect(f"exited with {128 + signal.SIGKILL}" in (harness.job.unexpected_exit or ""))
    harness.kill_job()
    harness.start_job()


def failing_store(harness: FaultHarness) -> None:
    """Start the job so that one of n of its writes fails, or is done without an answer.

    The stream starts again after each. In most cases it does so at once, and goes on until there were some dozens.
    """
    harness.kill_job()
    share, seed = 1 / harness.random.randint(2, 12), harness.random.randrange(2**31)
    retries_soon = harness.random.random() < 0.8
    failures = harness.directory / "failures"
    failures.write_bytes(b"")
    call = f"from tests.long.faults.injected import fail_some; fail_some({share}, {seed}, {str(failures)!r}); "
    harness.start_job(setup=call + (_RETRY_SOON if retries_soon else ""))
    most, until = harness.random.randint(10, 120), time.monotonic() + harness.seconds(2, 5) * harness.start_seconds
    while failures.stat().st_size < most and time.monotonic() < until and not harness.job.unexpected_exit:
        harness.operate(0.5)
    harness.expect(failures.stat().st_size > 0)
    harness.kill_job()
    harness.start_job()
