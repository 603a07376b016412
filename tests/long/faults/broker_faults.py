"""Faults of the only broker: killed, restarted or stopped, alone or with the job; and records that none can decode."""

from __future__ import annotations

import signal

from streaming_app.sandbox.broker import LocalBroker
from tests.long.faults.harness import STOPPED_SECONDS, TOPIC, FaultHarness
from tests.long.faults.job_faults import kill_running
from tests.support.processes import is_running, process_state, send_signal


def kill_broker(harness: FaultHarness) -> None:
    """Kill the broker and start it again, once or twice."""
    for _ in range(harness.times(2)):
        harness.wait_before()
        _kill(harness)
        harness.last(harness.seconds(0, 6))
        harness.broker.start()


def restart_broker(harness: FaultHarness) -> None:
    """Shut the broker down and start it again."""
    harness.wait_before()
    pid = harness.broker.pid
    harness.broker.stop()
    harness.expect(pid is not None and not is_running(pid))
    harness.last(harness.seconds(0, 6))
    harness.broker.start()


def stop_broker(harness: FaultHarness) -> None:
    """Stop the broker's process for longer than its sessions, and continue it."""
    harness.wait_before()
    pid = harness.broker.pid
    assert pid is not None
    send_signal(signal.SIGSTOP, [pid])
    harness.expect(lambda: process_state(pid) == "T")
    harness.last(STOPPED_SECONDS)
    send_signal(signal.SIGCONT, [pid])


def kill_job_and_broker(harness: FaultHarness) -> None:
    """Kill both; the job starts while no broker answers."""
    harness.wait_before()
    _kill(harness)
    kill_running(harness)
    harness.start_job()
    harness.last(harness.seconds(0, 12))
    harness.broker.start()


def poison(harness: FaultHarness) -> None:
    """Write records that no release can decode, between those of groups: they are in the log, and go to quarantine."""
    for _ in range(harness.random.randint(1, 3)):
        partition, offset = harness.write_unknown_record(harness.random)
        harness.expect(lambda: harness.client.end_offsets(TOPIC)[partition] > offset)  # noqa: B023 - called at once
        harness.operate(harness.seconds(0, 1))


def _kill(harness: FaultHarness) -> None:
    assert isinstance(harness.broker, LocalBroker)
    pid = harness.broker.pid
    harness.broker.kill()
    harness.expect(pid is not None and not is_running(pid))
