"""`streams-groups alerts`: the alerts that fire, and on request those that are pending or resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from streaming_app.cli.options import handle_errors, warehouse_options
from streaming_app.cli.warehouse import max_age_option, report_staleness
from streaming_app.tables.location import Location
from streaming_app.text import count, utc


@click.command()
@warehouse_options
@click.option(
    "--check",
    is_flag=True,
    help="Exit with 1 if an alert fires that is not silenced, or the tables are not up to date.",
)
@click.option("--silenced", "count_silenced", is_flag=True, help="With --check: silenced alerts count, too.")
@max_age_option
@click.option("--pending", is_flag=True, help="Also alerts whose condition has not held long enough to fire.")
@click.option("--resolved", is_flag=True, help="Also resolved alerts.")
@click.option("--json", "as_json", is_flag=True, help="Everything about them, as JSON.")
@handle_errors
def alerts(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    check: bool,
    count_silenced: bool,
    max_age: float,
    pending: bool,
    resolved: bool,
    as_json: bool,
) -> None:
    """Show the alerts that fire now."""
    from streaming_app.alerts.alert import FIRING, PENDING, RESOLVED  # noqa: PLC0415 - not loaded by --help
    from streaming_app.notify.silences import ActiveSilences  # noqa: PLC0415
    from streaming_app.queries import output  # noqa: PLC0415
    from streaming_app.queries.clusters import check_cluster  # noqa: PLC0415
    from streaming_app.tables.alerts_table import read_alerts, to_json  # noqa: PLC0415
    from streaming_app.tables.reader import WarehouseReader, quote  # noqa: PLC0415

    states = [FIRING, *([PENDING] if pending else []), *([RESOLVED] if resolved else [])]
    condition = f"cluster = {quote(cluster)} AND state IN ({', '.join(map(quote, states))})"
    reader = WarehouseReader(warehouse)
    check_cluster(reader, warehouse, cluster)
    found = sorted(read_alerts(reader, condition), key=lambda alert: alert.urgency)
    silences = ActiveSilences(warehouse, cluster, lambda line: click.echo(output.cell(line), err=True))
    silences.refresh()
    by = {alert.fingerprint: silences.find(alert) for alert in found if alert.state != RESOLVED}
    silenced = {name: {"silence": one.id, "until": one.ends_at} for name, one in by.items() if one}
    if as_json:
        click.echo(output.as_json([to_json(one) | {"silenced": silenced.get(one.fingerprint)} for one in found]))
    elif found:
        rows = [
            {
                "STATE": alert.state,
                "SEVERITY": alert.severity,
                "RULE": alert.rule,
                "GROUP": alert.group_id,
                "SINCE": alert.pending_since,
                "UNSENT": ", ".join(f"{d.sink} ({d.error or 'waiting'})" for d in alert.deliveries if not d.sent_at),
                **({"SILENCED": _format_silence(silenced.get(alert.fingerprint))} if silenced else {}),
                "SUMMARY": alert.summary,
            }
            for alert in found
        ]
        click.echo(output.columns(rows))
    else:
        click.echo("No alerts are firing.")
    is_stale = report_staleness(warehouse, cluster, max_age)
    if check:
        firing = [alert.fingerprint for alert in found if alert.state == FIRING]
        # As amtool: who silences an alert does not want to be woken by it, by whatever calls this command either.
        ignored = set() if count_silenced else silenced.keys() & firing
        if ignored:
            firing_alerts = count(len(ignored), "firing alert is", "firing alerts are")
            line = f"{firing_alerts} silenced and not counted: --silenced counts all."
            click.echo(output.cell(line), err=True)
        if is_stale or len(firing) > len(ignored):
            raise SystemExit(1)


def _format_silence(silenced: Mapping[str, Any] | None) -> str | None:
    return f"until {utc(silenced['until'])} ({silenced['silence']})" if silenced else None
