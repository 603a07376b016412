"""Where `task_copies` reads: the brokers, and the rows that the log gives; and the poller that a job makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.job.service import describes_requests
from streaming_app.job.task_copies import TaskCopies
from streaming_app.kafka.client import Descriptions, StreamsGroupClient, acceptable_lags, describe_each
from streaming_app.kafka.security import security_settings
from streaming_app.report import Report
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, quote
from streaming_app.tables.task_copies_table import TaskCopiesTable

if TYPE_CHECKING:
    from streaming_app.config.settings import JobConfig

_BOOTSTRAP_MS = 10_000
_GROUPS_PER_QUERY = 1_000


class GroupRows:
    """The rows of groups in the tables that the log gives."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._warehouse, self._own = warehouse, f"cluster = {quote(cluster)}"

    def groups(self, group_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return the rows of these groups by id. Raises WarehouseError when the table cannot be read."""
        if not group_ids:
            return {}
        reader = WarehouseReader(self._warehouse)
        found: dict[str, Mapping[str, Any]] = {}
        for start in range(0, len(group_ids), _GROUPS_PER_QUERY):
            names = ", ".join(map(quote, group_ids[start : start + _GROUPS_PER_QUERY]))
            rows = reader.rows(
                "SELECT group_id, assignment_configs, members, assignments, subtopologies FROM groups "  # noqa: S608 - quoted
                f"WHERE {self._own} AND group_id IN ({names})"
            )
            found.update({row["group_id"]: row for row in rows})
        return found


class ClientBrokers:
    """The brokers of a `StreamsGroupClient`."""

    def __init__(self, client: StreamsGroupClient) -> None:
        self.describe: Callable[[Sequence[str]], Descriptions] = partial(describe_each, client)
        self.acceptable_lags: Callable[[Sequence[str]], Mapping[str, int]] = partial(acceptable_lags, client)


def make_task_copies(
    config: JobConfig,
    properties: Mapping[str, str],
    groups: Callable[[], Mapping[str, GroupSnapshot]],
    may_ask: Callable[[], bool],
    report: Report,
) -> TaskCopies:
    """Return the poller of a job; `properties` are Kafka client properties."""

    @contextmanager
    def connect() -> Iterator[ClientBrokers]:
        settings = security_settings(properties)
        with StreamsGroupClient(config.bootstrap_server, bootstrap_timeout_ms=_BOOTSTRAP_MS, **settings) as client:
            yield ClientBrokers(client)

    return TaskCopies(
        config.task_copies.interval,
        connect,
        groups,
        GroupRows(config.warehouse, config.cluster),
        TaskCopiesTable(config.warehouse, config.cluster),
        may_ask=may_ask,
        report=report,
        describe_error=describes_requests(config.bootstrap_server, properties),
    )
