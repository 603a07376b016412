"""What runs beside the stream: the alerts, the metrics' server, and the job's sign of life. Started and ended here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from streaming_app.alerts.mirror import Mirror
from streaming_app.alerts.sender import Sender
from streaming_app.alerts.store import AlertStore
from streaming_app.alerts.watch import Agreed, Watch
from streaming_app.job.sign import SignOfLife
from streaming_app.metrics.collector import Sources, make_registry
from streaming_app.metrics.http import make_app
from streaming_app.metrics.server import Server
from streaming_app.serve.warehouse import Warehouse, quoted

if TYPE_CHECKING:
    from streaming_app.job.files import Files
    from streaming_app.job.health import Health
    from streaming_app.job.run import JobConfig

_STORM = "StreamsGroupRebalanceStorm"
_SEND_SECONDS = 10.0  # for what is due when `--once` is done
_CLOSE_SECONDS = 3.0


@dataclass(frozen=True)
class Beside:
    """What the stream tells of its batches, and how to end in good order."""

    mirror: Mirror
    _watch: Watch

    def finish(self) -> None:
        """Everything that was there is processed: look at it once more, and send what is due."""
        self._watch.finish(_SEND_SECONDS)


@contextmanager
def beside(
    config: JobConfig, files: Files, health: Health, say: Callable[[str], None], *, has_plugin: bool
) -> Iterator[Beside]:
    """Start all of it, and end it with the block."""
    _recall_quarantine(config, health)
    mirror = Mirror(config.warehouse, config.cluster, _storm_window(config))
    sign = SignOfLife(config, files, health, has_plugin=has_plugin)
    agreed = Agreed(
        cluster=config.cluster,
        interval=config.alerts.interval,
        terms_of=config.alerts.terms_of(),
        manner=config.alerts.manner(sink.name for sink in config.sinks),
        descriptions_since=sign.descriptions_since,
        retention_days=config.retention_days,
    )
    watch = Watch(
        agreed,
        mirror,
        AlertStore(config.warehouse, config.cluster),
        lambda: health.facts,
        partial(Sender, [sink.sink() for sink in config.sinks], say=say),
        say,
        sign.renew,
    )
    with ExitStack() as ended:
        if config.metrics.listen:
            registry = make_registry(
                Sources(config.cluster, mirror, health, watch.open_alerts, watch.sinks), config.metrics
            )
            server = Server(config.metrics.listen, make_app(registry, health, config.cluster))
            ended.callback(server.close)
            say(f"Metrics at {server.url}/metrics, with /health and /ready beside them")
        watch.start()
        ended.callback(lambda: sign.sign_off(watch.sinks()))
        ended.callback(watch.close, _CLOSE_SECONDS)
        yield Beside(mirror, watch)


def _storm_window(config: JobConfig) -> timedelta:
    """The longest window that any group's rule for rebalance storms looks back."""
    layers = [config.alerts.rules, *(override.rules for override in config.alerts.overrides)]
    windows = [getattr(getattr(layer, _STORM, None), "window", None) for layer in layers]
    return timedelta(seconds=max(window for window in windows if window is not None))


def _recall_quarantine(config: JobConfig, health: Health) -> None:
    """Let the job know of what was put into quarantine in the day before it started."""
    (row,) = Warehouse(config.warehouse).rows(
        f"SELECT count(*) AS n, max(timestamp) AS at FROM quarantine WHERE cluster = {quoted(config.cluster)} "  # noqa: S608 - quoted
        "AND timestamp > now() - INTERVAL '24 hours'"
    )
    if row["n"]:
        health.quarantined_before(row["n"], row["at"])
