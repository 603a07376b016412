"""The list of the job's background services: alerts, lag, metrics, heartbeat, self-check and others.

The services start before the topic is described. So a job that waits for brokers already serves metrics and probes,
sends alerts and writes heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from streaming_app.alerts.facts import DescriptionSupport, EngineSettings, Observed
from streaming_app.config.declared import make_labels, make_times_of
from streaming_app.config.defaults import TOPIC
from streaming_app.errors import WarehouseError
from streaming_app.job.alert_service import AlertConfig, AlertService
from streaming_app.job.broker_facts import BrokerFacts
from streaming_app.job.descriptions import DescriptionsService
from streaming_app.job.group_cache import GroupCache
from streaming_app.job.heartbeat import Heartbeat
from streaming_app.job.lag_service import LagService, make_lag_service
from streaming_app.job.read_again import GroupsToReadAgain
from streaming_app.job.self_check import make_self_check
from streaming_app.job.service import PolledBy, Service, Services
from streaming_app.job.task_copies import TaskCopies
from streaming_app.job.watchdog import Disks, make_watchdogs
from streaming_app.kafka.properties import client_properties
from streaming_app.metrics.collector import MetricSources, make_registry
from streaming_app.notify.mutes import Mutes
from streaming_app.notify.watchdog import WatchdogSink
from streaming_app.report import Report
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.health_tables import EndedProblems, HealthTables
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from streaming_app.tables.reader import WarehouseReader, quote
from streaming_app.web.monitoring import monitoring_server

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from streaming_app.config.settings import JobConfig
    from streaming_app.stream.health import Health
    from streaming_app.tables.fence import Fence

_SEND_SECONDS = 10.0  # for due notifications at the end of `--once`
_CLOSE_SECONDS = 3.0
_LATE_SECONDS = 120.0  # plus two triggers: groups are judged if the records are read up to this age

LAG, COPIES, FACTS, DESCRIPTIONS, SELF_CHECK = "lag", "task copies", "broker facts", "descriptions", "self-check"
_SERVICES: Mapping[str, Callable[[JobConfig], bool]] = {  # for jobs without `once`
    LAG: lambda config: config.lag.enabled,  # with `once` there is one pass at the end
    COPIES: lambda config: config.task_copies.enabled,
    FACTS: lambda config: config.broker_facts.enabled and config.topic == TOPIC,
    DESCRIPTIONS: lambda config: config.descriptions.enabled and config.topic == TOPIC,
    # If the topic is a copy, its groups are those of other brokers.
    SELF_CHECK: lambda config: config.self_check.enabled and config.topic == TOPIC,
}


def wanted_services(config: JobConfig) -> frozenset[str]:
    """Return the names of the optional services that this job runs."""
    return frozenset(name for name, is_enabled in _SERVICES.items() if is_enabled(config) and not config.once)


@dataclass
class BackgroundServices:
    """The running services. `group_cache` listens to the batches; `finish` ends a complete run."""

    group_cache: GroupCache
    read_again: GroupsToReadAgain
    _alerts: AlertService
    _descriptions: DescriptionSupport
    _watchdogs: Sequence[Service]
    _lag: LagService | None = None

    def description_plugin(self, *, exists: bool | None) -> None:
        """Record whether the brokers' configuration names a plugin for topology descriptions; None: not known."""
        now = datetime.now(timezone.utc)
        if exists:
            self._descriptions.plugin_found(now)
        elif exists is not None:
            self._descriptions.plugin_absent(now)

    def finish(self) -> None:
        """After the last batch, make a lag pass, evaluate the rules once more, and send due notifications."""
        if self._lag is not None:
            self._lag.finish()
        self._alerts.finish(_SEND_SECONDS)
        for one in self._watchdogs:  # the receiver misses it if no further run comes
            one.attempt()


@contextmanager
def background_services(
    config: JobConfig, health: Health, report: Report, fence: Fence | None = None
) -> Iterator[BackgroundServices]:
    """Start the services from the state of the last run; end them with the block. `fence` has this job's term."""
    earlier = _restore(config, health)
    group_cache = GroupCache(config.warehouse, config.cluster, read_all_at=lambda: _read_all_at(health))
    descriptions = DescriptionSupport(
        config.alerts.descriptions,
        known_since=earlier.descriptions_since if earlier else None,
        removed_at=earlier.descriptions_removed_at if earlier else None,
    )
    heartbeat = Heartbeat(config, health, descriptions, report, fence)
    mute_times = make_times_of(config.mute_times, config.time_intervals)
    mutes = Mutes(config.warehouse, config.cluster, report, times_of=mute_times)
    wanted = wanted_services(config)
    properties = client_properties(config.bootstrap_server, config.command_config)

    def may_ask() -> bool:
        return health.status.caught_up and group_cache.is_complete()

    polled_by = PolledBy(config, properties, group_cache.groups, may_ask, report, fence)
    copies = TaskCopies(polled_by, health.described) if COPIES in wanted else None
    facts = BrokerFacts(polled_by) if FACTS in wanted else None
    stored = DescriptionsService(polled_by) if DESCRIPTIONS in wanted else None

    lag = make_lag_service(config, properties, health, report, fence) if config.lag.enabled else None
    disks, ended = Disks(config), EndedProblems(config.warehouse, config.cluster)

    def observe() -> Observed:
        return Observed(
            group_cache.groups(),
            group_cache.histories(),
            lag.work() if lag else {},
            facts.retention() if facts else {},
            lag.away() if lag else {},
            copies.statuses() if copies else {},
            replace(health.status, disks=disks.now()),
            stored.lost() if stored else {},
            facts.topic_differences() if facts else {},
            ended.reasons(),
        )

    watchdogs, labels_of = make_watchdogs(config, health, report), make_labels(config.labels)
    alerts = AlertService(
        AlertConfig(
            EngineSettings(
                config.cluster,
                config.alerts.rule_settings_of(),
                lag_of_all_groups=config.alerts.lag_of == "all",
                late_seconds=_LATE_SECONDS + 2 * config.trigger,
                running_hours_of=make_times_of(config.running_hours, config.time_intervals),
                successors=config.alerts.successors,
                labels_of=labels_of,
            ),
            config.alerts.interval,
            config.retention_days,
        ),
        group_cache,
        mutes,
        observe,
        AlertsTable(config.warehouse, config.cluster, fence),
        HealthTables(config.warehouse, config.cluster, fence),
        [sink for sink in config.sinks if not isinstance(sink, WatchdogSink)],
        descriptions,
        report,
        heartbeat.evaluated,
        fence,
    )
    with ExitStack() as at_exit:
        sources = MetricSources(
            config.cluster,
            group_cache,
            health,
            alerts.problems,
            alerts.sinks,
            lag.rows if lag else lambda: None,
            copies.sums if copies else dict,
            alerts.verdicts,
            lag.types if lag else dict,
            alerts.newcomers_left_out,
            labels_of,
        )
        serve(config, make_registry(sources, config.metrics), health, report, at_exit)
        alerts.start()
        at_exit.callback(lambda: heartbeat.ended(alerts.sinks()))
        at_exit.callback(alerts.end, _CLOSE_SECONDS)
        read_again = GroupsToReadAgain(config.warehouse, config.cluster)
        running = Services()
        at_exit.callback(running.close)
        running.start(heartbeat)
        check = make_self_check(config, properties, read_again.ask, health=health, report=report)
        for service in filter(None, (lag, copies, facts, stored, check)):
            if service.name in wanted:
                running.start(service)
        for watchdog in () if config.once else watchdogs:  # with `once` there is one heartbeat at the end
            running.start(watchdog)
        yield BackgroundServices(group_cache, read_again, alerts, descriptions, watchdogs, lag)


def serve(config: JobConfig, registry: CollectorRegistry, health: Health, report: Report, at_exit: ExitStack) -> None:
    """Serve metrics and probes until `at_exit` ends, if the configuration says so. Raises SetupError."""
    if config.metrics.listen:
        server = monitoring_server(
            config.metrics.listen, registry, health, config.cluster, config.metrics.allowed_hosts
        )
        server.start()
        at_exit.callback(server.close)
        report(f"Serving {server.url}/metrics, /health and /ready")


def _restore(config: JobConfig, health: Health) -> HeartbeatRecord | None:
    """Restore `health` from an earlier run; return the last heartbeat of that run."""
    (row,) = WarehouseReader(config.warehouse).rows(
        f"SELECT count(*) AS n, max(timestamp) AS at FROM quarantine WHERE cluster = {quote(config.cluster)} "  # noqa: S608 - quoted
        "AND void IS NOT TRUE AND timestamp > now() - INTERVAL '24 hours'"
    )
    if row["n"]:
        health.quarantined_before(row["n"], row["at"])
    try:
        earlier = read_heartbeat(config.warehouse, config.cluster)
    except WarehouseError:  # another release wrote it
        return None
    if earlier:
        health.restore(earlier.facts)
        if health.offsets and earlier.facts.offsets:
            health.offsets.restore(earlier.facts.offsets)
    return earlier


def _read_all_at(health: Health) -> datetime | None:
    """Return when this run had last read everything; None if it has not yet."""
    status = health.status
    return status.caught_up_at if status.caught_up else None
