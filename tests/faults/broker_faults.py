"""Faults of the broker: killed, restarted or stopped, alone or together with the job."""

from __future__ import annotations

import signal
import time

from tests.faults.harness import STOPPED_SECONDS, FaultHarness
from tests.processes import send_signal


def kill_broker(harness: FaultHarness) -> int:
    """Kill the broker and start it again, once or twice; return how often."""
    kills = harness.random.randint(1, 2)
    for _ in range(kills):
        harness.wait_before()
        harness.broker.kill()
        time.sleep(harness.seconds(0, 6))
        harness.broker.start()
    return kills


def restart_broker(harness: FaultHarness) -> None:
    """Shut the broker down and start it again."""
    harness.wait_before()
    harness.broker.stop()
    time.sleep(harness.seconds(0, 6))
    harness.broker.start()


def stop_broker(harness: FaultHarness) -> None:
    """Stop the broker's process for longer than its sessions, and continue it."""
    harness.wait_before()
    pid = harness.broker.pid
    assert pid is not None
    send_signal(signal.SIGSTOP, [pid])
    time.sleep(STOPPED_SECONDS)
    send_signal(signal.SIGCONT, [pid])


def kill_job_and_broker(harness: FaultHarness) -> int:
    """Kill both; the job starts while no broker answers. Return 2."""
    harness.wait_before()
    harness.broker.kill()
    harness.kill_job()
    harness.start_job()
    time.sleep(harness.seconds(0, 12))
    harness.broker.start()
    return 2
