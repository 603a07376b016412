"""The kinds of faults: what each does to the job, its broker or its warehouse, and how often it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.faults import broker_faults, job_faults, warehouse_faults
from tests.faults.harness import FaultHarness


class Fault(NamedTuple):
    """A kind of fault."""

    inject: Callable[[FaultHarness], int | None]
    """Returns how many faults there were; None for one."""
    weight: int
    needs_compaction: bool = False
    erases: bool = False
    """Whether it removes rows of the history, which what was wrong with earlier faults may be seen in."""

    @property
    def name(self) -> str:
        return self.inject.__name__


FAULTS = {
    fault.name: fault
    for fault in (
        Fault(job_faults.kill_job, 6),
        Fault(job_faults.kill_tree, 4),
        Fault(job_faults.kill_jvm, 4),
        Fault(job_faults.kill_worker, 5),
        Fault(job_faults.terminate, 3),
        Fault(job_faults.stop_job, 2),
        Fault(job_faults.jvm_outlives_job, 2),
        Fault(job_faults.two_starts, 3),
        Fault(job_faults.kill_at_write, 6),
        Fault(job_faults.failing_store, 7),
        Fault(broker_faults.kill_broker, 3),
        Fault(broker_faults.restart_broker, 2),
        Fault(broker_faults.stop_broker, 2),
        Fault(broker_faults.kill_job_and_broker, 2),
        Fault(warehouse_faults.full_disk, 3),
        Fault(warehouse_faults.lose_checkpoint, 3),
        Fault(warehouse_faults.lose_table, 3, erases=True),
        Fault(warehouse_faults.lose_tables, 2, erases=True),
        Fault(warehouse_faults.lose_while_running, 2, erases=True),
        Fault(warehouse_faults.restore_table, 3, erases=True),
        Fault(warehouse_faults.restore_copy, 2, erases=True),
        Fault(warehouse_faults.reset, 2),
        Fault(warehouse_faults.kill_during_reset, 3),
        Fault(warehouse_faults.kill_during_rereading, 3),
        Fault(warehouse_faults.miss_tombstones, 4, needs_compaction=True),
        Fault(warehouse_faults.recreate_topic, 1),
    )
}
