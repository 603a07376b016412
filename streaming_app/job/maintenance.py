"""The service that runs the maintenance of the tables of one stream, see `tables.maintenance`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_app.job.service import Service
from streaming_app.job.stream_query import OFFSETS
from streaming_app.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_app.tables.maintenance import Maintenance

_INTERVAL_SECONDS = 1.0  # it looks at what is due; that takes no time


class MaintenanceService(Service):
    """Runs what is due, from `start` to `close`."""

    def __init__(self, maintenance: Maintenance, spark: SparkSession, report: Report) -> None:
        """Prepare; `report` gets lines about failures of the service, not about those of a task."""
        super().__init__("maintenance", report, interval=_INTERVAL_SECONDS)
        self._maintenance, self._spark = maintenance, spark

    def tick(self) -> None:
        """Run the tasks that are due."""
        # In the pool of the second stream: the batches of the streams groups go before.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", OFFSETS)
        self._maintenance.run()
