"""Faults of the only broker: killed or stopped, alone or with the job; and records that none can decode."""

from __future__ import annotations

import signal

from streaming_app.sandbox.broker import LocalBroker
from tests.long.campaign.bed import TOPIC
from tests.long.faults.bed import STOPPED_SECONDS, FaultBed
from tests.long.faults.job_faults import kill_running
from tests.support.processes import is_running, process_state, send_signal


def kill_broker(bed: FaultBed) -> None:
    """Kill the broker and start it again, once or twice."""
    for _ in range(bed.times(2)):
        bed.wait_before()
        _kill(bed)
        bed.last(bed.seconds(0, 6))
        bed.broker.start()


def stop_broker(bed: FaultBed) -> None:
    """Stop the broker's process for longer than its sessions, and continue it."""
    bed.wait_before()
    pid = bed.broker.pid
    assert pid is not None
    send_signal(signal.SIGSTOP, [pid])
    bed.expect(lambda: process_state(pid) == "T")
    bed.last(STOPPED_SECONDS)
    send_signal(signal.SIGCONT, [pid])


def kill_job_and_broker(bed: FaultBed) -> None:
    """Kill both; the job starts while no broker answers."""
    bed.wait_before()
    _kill(bed)
    kill_running(bed)
    bed.start_job()
    bed.last(bed.seconds(0, 12))
    bed.broker.start()


def poison(bed: FaultBed) -> None:
    """Write records that no release can decode, between those of groups: they are in the log, and go to quarantine."""
    for _ in range(bed.random.randint(1, 3)):
        partition, offset = bed.write_unknown_record(bed.random)
        bed.expect(lambda: bed.client.end_offsets(TOPIC)[partition] > offset)  # noqa: B023 - called at once
        bed.operate(bed.seconds(0, 1))


def _kill(bed: FaultBed) -> None:
    assert isinstance(bed.broker, LocalBroker)
    pid = bed.broker.pid
    bed.broker.kill()
    bed.expect(pid is not None and not is_running(pid))
