"""Faults of the job's processes: killed or stopped, and failures of what they write."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from tests.long.campaign.bed import UnexpectedError
from tests.long.faults.bed import STOPPED_SECONDS, FaultBed
from tests.support.processes import is_running, process_state, send_signal
from tests.support.waiting import wait_until

_EXIT_SECONDS = 300.0
_RETRY_SOON = "from tests.long.faults.injected import retry_soon; retry_soon(); "


def kill_job(bed: FaultBed) -> None:
    """Kill the process that a user started, at any moment, also while it starts."""
    _repeat(bed, lambda: kill_running(bed))


def kill_running(bed: FaultBed) -> None:
    """Kill the process that a user started, which runs."""
    pid = bed.job.pid
    bed.kill_job()
    bed.expect(pid is not None and not is_running(pid))


def kill_tree(bed: FaultBed) -> None:
    """Kill all processes of the job at once."""

    def kill() -> None:
        pids = bed.job.pids()
        bed.job.kill_tree()
        bed.expect(bool(pids) and (lambda: not any(map(is_running, pids))))

    _repeat(bed, kill)


def kill_jvm(bed: FaultBed) -> None:
    """Kill Spark's JVM: the job says so in one line, and ends."""

    def kill() -> None:
        jvms, before = bed.job.jvms(), len(bed.job.output)
        if error := bed.job.kill_jvm():
            raise UnexpectedError(error)
        printed = bed.job.output[before:]
        if jvms and ("Traceback" in printed or "\nError: " not in f"\n{printed}"):
            raise UnexpectedError(f"the JVM was killed, and the job printed {printed[-2000:]}")
        bed.expect(bool(jvms) and not any(map(is_running, jvms)))

    _repeat(bed, kill)


def terminate(bed: FaultBed) -> None:
    """Stop the job as a service manager does, at any moment."""

    def stop() -> None:
        pid = bed.job.pid
        if error := bed.job.terminate():
            raise UnexpectedError(error)
        bed.expect(pid is not None and not is_running(pid))

    _repeat(bed, stop)


def _repeat(bed: FaultBed, end: Callable[[], None]) -> None:
    """End the job once or several times, each time while it starts again."""
    bed.wait_before()
    for number in range(bed.times()):
        if number:
            bed.operate(bed.seconds(0, 1.2) * bed.start_seconds)
            bed.ensure_running()
        end()
        bed.start_job()


def kill_worker(bed: FaultBed) -> None:
    """Kill the Python workers of Spark, some times: the job goes on by itself."""
    bed.kill_job()
    retries_soon = bed.random.random() < 0.8  # else it gives up at the fourth failure, and is started again
    bed.start_job_for_workers(_RETRY_SOON if retries_soon else "")
    bed.wait_before()  # which ends at once where a job that has just been started has nothing to read
    until = time.monotonic() + _EXIT_SECONDS
    while not (bed.job.workers() or bed.job.unexpected_exit) and time.monotonic() < until:
        bed.operate(0.3)  # there is none before the first batch
    killed: list[int] = []
    for _ in range(bed.random.randrange(5, 16)):
        workers = bed.job.workers()
        send_signal(signal.SIGKILL, workers)
        killed += workers
        bed.operate(bed.seconds(0, 2))
    bed.expect(bool(killed) and (lambda: not any(map(is_running, killed))))


def stop_job(bed: FaultBed) -> None:
    """Stop all processes of the job, or one of them, for longer than sessions, and continue them."""
    bed.wait_before()
    pids = bed.job.pids()
    stopped = pids if bed.random.random() < 0.5 else [bed.pick(pids)]
    send_signal(signal.SIGSTOP, stopped)
    bed.expect(bool(stopped) and (lambda: all(process_state(pid) == "T" for pid in stopped)))
    bed.operate(STOPPED_SECONDS)
    send_signal(signal.SIGCONT, stopped)


def jvm_outlives_job(bed: FaultBed) -> None:
    """Stop the JVM, kill the job, start another one, and continue the old JVM in the middle of what it did."""
    bed.wait_before()
    jvms = bed.job.jvms()
    send_signal(signal.SIGSTOP, jvms)
    bed.kill_job(with_stopped_jvm=True)
    bed.expect(bool(jvms) and (lambda: all(process_state(pid) == "T" for pid in jvms)))
    bed.start_job()
    bed.operate_during_start()
    send_signal(signal.SIGCONT, jvms)
    if not wait_until(lambda: not any(map(is_running, jvms)), _EXIT_SECONDS):
        send_signal(signal.SIGKILL, jvms)
        raise UnexpectedError(f"the JVM of a job that was killed still runs after {_EXIT_SECONDS:.0f} s")


def kill_at_write(bed: FaultBed) -> None:
    """Start the job so that it kills itself before or after one of its first writes, some times in a row."""
    for _ in range(bed.times(5)):
        bed.kill_job()
        number, after = bed.random.randrange(1, 25), bed.random.random() < 0.5
        bed.start_job(setup=f"from tests.long.faults.injected import kill_at; kill_at({number}, after={after}); ")
        until = time.monotonic() + 2 * bed.start_seconds
        while not bed.job.unexpected_exit and time.monotonic() < until:
            bed.operate(0.3)
        bed.expect(f"exited with {128 + signal.SIGKILL}" in (bed.job.unexpected_exit or ""))
    bed.kill_job()
    bed.start_job()


def failing_store(bed: FaultBed) -> None:
    """Start the job so that one of n of its writes fails, or is done without an answer.

    The stream starts again after each. In most cases it does so at once, and goes on until there were some dozens.
    """
    bed.kill_job()
    share, seed = 1 / bed.random.randint(2, 12), bed.random.randrange(2**31)
    retries_soon = bed.random.random() < 0.8
    failures = bed.directory / "failures"
    failures.write_bytes(b"")
    call = f"from tests.long.faults.injected import fail_some; fail_some({share}, {seed}, {str(failures)!r}); "
    bed.start_job(setup=call + (_RETRY_SOON if retries_soon else ""))
    most, until = bed.random.randint(10, 120), time.monotonic() + bed.seconds(2, 5) * bed.start_seconds
    while failures.stat().st_size < most and time.monotonic() < until and not bed.job.unexpected_exit:
        bed.operate(0.5)
    bed.expect(failures.stat().st_size > 0)
    bed.kill_job()
    bed.start_job()
