"""The list of the job's background services: alerts, lag, metrics, heartbeat and others.

The services start before the topic is described. So a job that waits for brokers already serves metrics and probes,
sends alerts and writes heartbeats.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from prometheus_client import CollectorRegistry

from streaming_app.alerts.engine_facts import DescriptionSupport, EngineSettings, Observed
from streaming_app.config.declared import make_labels, make_times_of
from streaming_app.config.defaults import TOPIC
from streaming_app.config.settings import JobConfig
from streaming_app.errors import OtherOwnerError, WarehouseError
from streaming_app.job.alert_service import AlertService
from streaming_app.job.broker_facts import BrokerFacts
from streaming_app.job.copies_service import TaskCopies
from streaming_app.job.descriptions import DescriptionsService
from streaming_app.job.group_cache import GroupCache
from streaming_app.job.lag_pass import PassResult
from streaming_app.job.lag_service import LagService
from streaming_app.job.read_again import GroupsToReadAgain
from streaming_app.job.service import Job, Service, Services
from streaming_app.job.watchdog import Disks, Heartbeat, watchdog
from streaming_app.job_status import SinkStatus
from streaming_app.lag.open_transactions import NO_TRANSACTIONS
from streaming_app.metrics.collector import make_registry
from streaming_app.metrics.job_metrics import JobScrape
from streaming_app.notify.http_sink import WatchdogSink
from streaming_app.report import Report
from streaming_app.stream.job_state import JobState
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from streaming_app.tables.maintenance import maintain_all, maintained_tables
from streaming_app.tables.writer import TableWriter
from streaming_app.web.monitoring import monitoring_server

_SEND_SECONDS = 10.0  # for due notifications at the end of `--once`
_CLOSE_SECONDS = 3.0
_MAINTENANCE_SECONDS = 5.0  # between two checks whether maintenance is due: each has a thread for each table
_LATE_SECONDS = 120.0  # plus two triggers: groups are judged if the records are read up to this age


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
        self._descriptions.plugin_read(datetime.now(timezone.utc), exists=exists)

    def finish(self) -> None:
        """After the last batch, make a lag pass, evaluate the rules once more, and send due notifications."""
        if self._lag is not None:
            self._lag.finish()
        self._alerts.finish(_SEND_SECONDS)
        for one in self._watchdogs:  # the receiver misses it if no further run comes
            one.attempt()


@contextmanager
def background_services(job: Job) -> Iterator[BackgroundServices]:
    """Start the services from the state of the last run; end them with the block."""
    config, health = job.config, job.health
    earlier = _restore(job)
    group_cache = GroupCache(job)
    job = replace(job, groups=group_cache.groups, may_ask=lambda: health.status.caught_up and group_cache.is_complete)
    descriptions = DescriptionSupport(
        config.alerts.descriptions,
        known_since=earlier.descriptions_since if earlier else None,
        removed_at=earlier.descriptions_removed_at if earlier else None,
    )
    heartbeat, disks = Heartbeat(job, descriptions, earlier), Disks(config)
    # With `once` none begins, and the lag has its passes at the end. The groups of a copied topic are of other brokers.
    runs, is_of_brokers = not config.once, not config.once and config.topic == TOPIC
    lag = LagService(job) if config.lag.enabled else None
    facts = BrokerFacts(job, lag.held if lag else list) if config.broker_facts.enabled and is_of_brokers else None
    copies = TaskCopies(job, facts.acceptable_lags if facts else dict) if config.task_copies.enabled and runs else None
    stored = DescriptionsService(job) if config.descriptions.enabled and is_of_brokers else None
    read_again = GroupsToReadAgain(job)

    def observe(failing: Sequence[SinkStatus]) -> Observed:
        group_cache.refresh()
        newest = lag.newest() if lag else PassResult([], {}, at=0.0, seconds=0.0)
        return Observed(
            group_cache.groups(),
            group_cache.histories(),
            newest.work if newest else None,
            facts.retention() if facts else {},
            newest.away if newest else {},
            copies.statuses() if copies else {},
            facts.transactions() if facts else NO_TRANSACTIONS,
            facts.sinks() if facts else {},
            replace(health.status, failing_sinks=failing, disks=disks.now()),
            stored.lost() if stored else {},
            facts.topic_differences() if facts else {},
        )

    settings = engine_settings(config)
    alerts = AlertService(job, settings, observe, descriptions, heartbeat.evaluated)

    def scrape() -> JobScrape:
        return JobScrape(
            config.cluster,
            group_cache.groups(),
            health.status,
            health.totals,
            alerts.open_alerts(),
            alerts.is_muted,
            alerts.sinks(),
            lag.result.rows if lag and lag.result else None,
            copies.sums() if copies else {},
            alerts.verdicts(),
            lag.result.types if lag and lag.result else {},
            alerts.newcomers_left_out(),
            group_cache.rebalances_total,
            settings.labels_of,
        )

    with ExitStack() as at_exit:
        serve(config, make_registry(scrape, config.metrics), health, job.report, at_exit)
        alerts.start()
        at_exit.push(lambda _kind, error, _traceback: heartbeat.ended(alerts.sinks(), error))
        at_exit.callback(alerts.end, _CLOSE_SECONDS)
        running = Services()
        at_exit.callback(running.close)
        beats = [watchdog(job, sink) for sink in config.sinks if isinstance(sink, WatchdogSink)]
        wanted = (lag, copies, facts, stored, *beats) if runs else ()  # the heartbeats come at the end
        for service in (heartbeat, *filter(None, wanted)):
            running.start(service)
        yield BackgroundServices(group_cache, read_again, alerts, descriptions, beats, lag)


def maintenance_service(job: Job, writer: TableWriter, may_run: Callable[[], bool], stop: threading.Event) -> Service:
    """Return the service that maintains tables. It begins nothing unless `may_run`, and nothing once `stop` is set."""
    due = maintained_tables(writer, job.config.retention_days, job.config.lag.history_days)

    def run() -> None:
        try:
            if job.fence:
                job.fence.maintain_log()
            maintain_all(due, lambda: stop.is_set() or service.stopping.is_set(), job.report)
        except OtherOwnerError:
            raise
        except Exception:
            if not (stop.is_set() or service.stopping.is_set()):
                job.health.maintenance_failed()
            raise

    service = Service("maintenance", job.report, interval=_MAINTENANCE_SECONDS, may_tick=may_run, do=run)
    return service


def engine_settings(config: JobConfig) -> EngineSettings:
    """Return what the engine of the alerts needs of the configuration of a job."""
    return EngineSettings(
        config.cluster,
        config.alerts.rule_settings_of(),
        lag_of_all_groups=config.alerts.protocols == "all_groups",
        of_classic_groups=config.alerts.protocols != "streams",
        late_seconds=_LATE_SECONDS + 2 * config.trigger,
        running_hours_of=make_times_of(config.running_hours, config.time_intervals),
        successors=config.alerts.successors,
        labels_of=make_labels(config.labels),
    )


def serve(config: JobConfig, registry: CollectorRegistry, health: JobState, report: Report, at_exit: ExitStack) -> None:
    """Serve metrics and probes until `at_exit` ends, if the configuration says so. Raises SetupError."""
    if config.metrics.listen:
        server = monitoring_server(
            config.metrics.listen, registry, health, config.cluster, config.metrics.allowed_hosts
        )
        server.start()
        at_exit.callback(server.close)
        report(f"Serving {server.url}/metrics, /health and /ready")


def _restore(job: Job) -> HeartbeatRecord | None:
    """Restore the health from an earlier run; return the last heartbeat of that run."""
    config, health = job.config, job.health
    of_a_day = "void IS NOT TRUE AND error_kind <> 'UnknownRecordType' AND timestamp > now() - INTERVAL '24 hours'"
    (row,) = job.rows("quarantine", "count(*) AS n, max(timestamp) AS at", of_a_day)
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
