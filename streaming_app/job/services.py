"""What runs in the background of the stream: alerts, lag, metrics, the page, the heartbeat and the self-check.

The services start before the topic is described: a job that waits for brokers serves metrics and probes, sends alerts
and writes heartbeats. The self-check belongs to a query: it begins and ends with each start of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from streaming_app.alerts.description_support import DescriptionSupport
from streaming_app.errors import WarehouseError
from streaming_app.job.alert_service import AlertEvaluator, EvaluatorConfig
from streaming_app.job.copies_sources import make_task_copies
from streaming_app.job.group_cache import GroupCache
from streaming_app.job.heartbeat import Heartbeat
from streaming_app.job.lag_service import LagService, make_lag_service
from streaming_app.job.page_service import serving_page
from streaming_app.job.task_copies import TaskCopies
from streaming_app.kafka.offsets_topic import client_properties
from streaming_app.metrics.collector import MetricSources, make_registry
from streaming_app.notify.dispatcher import Dispatcher
from streaming_app.notify.silences import ActiveSilences
from streaming_app.notify.sink import TextSettings
from streaming_app.notify.summaries import DailySummaries, make_summary
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from streaming_app.tables.reader import WarehouseReader, quote
from streaming_app.web.monitoring import monitoring_server

if TYPE_CHECKING:
    from streaming_app.config.job_config import JobConfig
    from streaming_app.job.self_check import SelfCheck
    from streaming_app.notify.daily_summary import DailySummary
    from streaming_app.notify.sink_worker import SinkStatus
    from streaming_app.stream.health import Health
    from streaming_app.tables.files import Files
    from streaming_app.tables.location import Location

_SEND_SECONDS = 10.0  # for notifications that are due when `--once` is done
_CLOSE_SECONDS = 3.0


@dataclass
class BackgroundServices:
    """The running services: `group_cache` listens to the batches, `finish` ends a complete run."""

    group_cache: GroupCache
    _evaluator: AlertEvaluator
    _descriptions: DescriptionSupport
    _lag: LagService | None = None
    _self_check: SelfCheck | None = None

    def start_self_check(self, self_check: SelfCheck) -> None:
        """Start the self-check of a query."""
        self._self_check = self_check
        self_check.start()

    def stop_self_check(self) -> None:
        """Stop the self-check, if one runs: it writes nothing after that."""
        if self._self_check is not None:
            self._self_check.close()
            self._self_check = None

    def description_plugin(self, *, exists: bool | None) -> None:
        """Record whether the brokers' configuration names a plugin for topology descriptions; None: not known."""
        now = datetime.now(timezone.utc)
        if exists:
            self._descriptions.plugin_found(now)
        elif exists is not None:
            self._descriptions.plugin_absent(now)

    def finish(self) -> None:
        """Find the lag and evaluate the rules once more after the last batch, and send what is due."""
        if self._lag is not None:
            self._lag.finish()
        self._evaluator.finish(_SEND_SECONDS)


@contextmanager
def background_services(
    config: JobConfig, files: Files, health: Health, report: Callable[[str], None]
) -> Iterator[BackgroundServices]:
    """Start the services with what an earlier run knew, and end them with the block."""
    earlier = _last_heartbeat(config)
    if earlier:
        health.restore(earlier.facts)
        if health.offsets and earlier.facts.offsets:
            health.offsets.restore(earlier.facts.offsets)
    _restore_quarantine_count(config, health)
    window = timedelta(seconds=config.alerts.rebalance_window)
    group_cache = GroupCache(config.warehouse, config.cluster, window, read_all_at=lambda: _read_all_at(health))
    known_since = earlier.descriptions_since if earlier else None
    descriptions = DescriptionSupport(config.alerts.descriptions, known_since=known_since)
    heartbeat = Heartbeat(config, files, health, descriptions)
    silences = ActiveSilences(config.warehouse, config.cluster, report)
    copies = _task_copies(config, group_cache, health, report)
    store = AlertsTable(config.warehouse, config.cluster)

    def summary_at(now: datetime) -> DailySummary:
        groups = group_cache.groups().values()
        return make_summary(config.cluster, now, groups, store.alerts(), lambda alert: bool(silences.find(alert)))

    def on_evaluated(sinks: tuple[SinkStatus, ...]) -> None:
        heartbeat.beat(sinks)
        summaries.send_due()

    lag = None
    if config.lag.enabled:
        properties = client_properties(config.bootstrap_server, config.command_config)
        lag = make_lag_service(config, properties, health, report)
    evaluator = AlertEvaluator(
        EvaluatorConfig(
            cluster=config.cluster,
            interval=config.alerts.interval,
            rule_settings_of=config.alerts.rule_settings_of(),
            notify_policy=config.alerts.notify_policy(sink.name for sink in config.sinks),
            descriptions=descriptions,
            retention_days=config.retention_days,
            lag_of_all_groups=config.alerts.lag_of == "all",
        ),
        group_cache,
        store,
        lambda: health.status,
        partial(
            Dispatcher,
            [sink.sink() for sink in config.sinks],
            report=report,
            grouping=config.alerts.grouping,
            silences=silences,
        ),
        report,
        on_evaluated,
        differing_groups=lambda: health.differing_groups,
        copies=copies.statuses if copies else tuple,
        lag=lag.groups if lag else dict,
    )
    times = {sink.name: sink.summary for sink in config.sinks if isinstance(sink, TextSettings) and sink.summary}
    record = _SmallFile(files, config.warehouse / "_jobs" / f"{config.cluster}.summaries.json")
    summaries = DailySummaries(times, record, summary_at, evaluator.send_summary)
    with ExitStack() as at_exit:
        if config.metrics.listen:
            newest_lag = lag.status if lag else _no_lag
            sources = MetricSources(
                config.cluster,
                group_cache,
                health,
                evaluator.open_alerts,
                evaluator.sinks,
                newest_lag,
                copies.sums if copies else dict,
            )
            registry = make_registry(sources, config.metrics)
            server = monitoring_server(config.metrics.listen, registry, health, config.cluster)
            server.start()
            at_exit.callback(server.close)
            report(f"Serving {server.url}/metrics, /health and /ready")
        at_exit.enter_context(serving_page(config, report))
        evaluator.start()
        at_exit.callback(lambda: heartbeat.stop(evaluator.sinks()))
        at_exit.callback(evaluator.close, _CLOSE_SECONDS)
        if lag is not None and not config.once:
            lag.start()
            at_exit.callback(lag.close)
        if copies:
            copies.start()
            at_exit.callback(copies.close)
        services = BackgroundServices(group_cache, evaluator, descriptions, lag)
        at_exit.callback(services.stop_self_check)  # before the others end
        yield services


def _no_lag() -> None:
    return None


def _task_copies(
    config: JobConfig, group_cache: GroupCache, health: Health, report: Callable[[str], None]
) -> TaskCopies | None:
    if config.once or not config.task_copies.enabled:
        return None
    properties = client_properties(config.bootstrap_server, config.command_config)
    return make_task_copies(config, properties, group_cache.groups, lambda: health.status.caught_up, report)


class _SmallFile(NamedTuple):
    files: Files
    location: Location

    def read(self) -> str | None:
        return self.files.read(self.location)

    def write(self, text: str) -> None:
        self.files.write(self.location, text)


def _last_heartbeat(config: JobConfig) -> HeartbeatRecord | None:
    try:
        return read_heartbeat(config.warehouse, config.cluster)
    except WarehouseError:  # written by another release
        return None


def _read_all_at(health: Health) -> datetime | None:
    """Return when this run had last read everything; None if it has not yet."""
    status = health.status
    return status.caught_up_at if status.caught_up else None


def _restore_quarantine_count(config: JobConfig, health: Health) -> None:
    """Restore the number of records that were quarantined in the 24 hours before the job started."""
    (row,) = WarehouseReader(config.warehouse).rows(
        f"SELECT count(*) AS n, max(timestamp) AS at FROM quarantine WHERE cluster = {quote(config.cluster)} "  # noqa: S608 - quoted
        "AND timestamp > now() - INTERVAL '24 hours'"
    )
    if row["n"]:
        health.quarantined_before(row["n"], row["at"])
