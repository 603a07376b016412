"""The kinds of faults: what each does to the job, its broker or its warehouse, and how often it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.long.faults import broker_faults, cluster_faults, job_faults, warehouse_faults

ONE, THREE = frozenset({1}), frozenset({3})
ANY = ONE | THREE


class Fault(NamedTuple):
    inject: Callable[[Any], None]
    """Gets the bed, which it tells each effect by `expect`."""
    weight: int
    needs_compaction: bool = False
    erases: bool = False
    """Whether it removes rows of the history, which what was wrong with earlier faults may be seen in."""
    brokers: frozenset[int] = ONE
    """How many brokers it may happen to."""

    @property
    def name(self) -> str:
        return self.inject.__name__


FAULTS = {
    fault.name: fault
    for fault in (
        Fault(job_faults.kill_job, 6, brokers=ANY),
        Fault(job_faults.kill_tree, 4),
        Fault(job_faults.kill_jvm, 4, brokers=ANY),
        Fault(job_faults.kill_worker, 5),
        Fault(job_faults.terminate, 3),
        Fault(job_faults.stop_job, 2),
        Fault(job_faults.jvm_outlives_job, 2),
        Fault(job_faults.kill_at_write, 6),
        Fault(job_faults.failing_store, 7),
        Fault(broker_faults.kill_broker, 5),
        Fault(broker_faults.stop_broker, 2),
        Fault(broker_faults.kill_job_and_broker, 2),
        Fault(broker_faults.poison, 3, brokers=ANY),
        Fault(cluster_faults.kill_node, 3, brokers=THREE),
        Fault(cluster_faults.pause_node, 3, brokers=THREE),
        Fault(cluster_faults.unclean_election, 4, brokers=THREE),
        Fault(cluster_faults.move_leader, 6, brokers=THREE),
        Fault(cluster_faults.rolling_upgrade, 1, brokers=THREE),
        Fault(warehouse_faults.full_disk, 3, brokers=ANY),
        Fault(warehouse_faults.lose_checkpoint, 3),
        Fault(warehouse_faults.lose_tables, 5, erases=True),
        Fault(warehouse_faults.lose_while_running, 2, erases=True),
        Fault(warehouse_faults.restore_table, 3, erases=True),
        Fault(warehouse_faults.restore_copy, 2, erases=True),
        Fault(warehouse_faults.kill_during_rereading, 8),
        Fault(warehouse_faults.miss_tombstones, 4, needs_compaction=True),
    )
}
