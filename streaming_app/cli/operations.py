"""The commands that tell how things are going: `alerts` and `status`."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from streaming_app.cli.options import explained, located
from streaming_app.serve.place import Place


@click.command()
@located
@click.option("--check", is_flag=True, help="Exit with 1 if anything fires.")
@click.option("--pending", is_flag=True, help="Also what has not lasted long enough to fire.")
@click.option("--resolved", is_flag=True, help="Also what is over.")
@click.option("--json", "as_json", is_flag=True, help="Everything about them, as JSON.")
@explained
def alerts(warehouse: Place, cluster: str, check: bool, pending: bool, resolved: bool, as_json: bool) -> None:  # noqa: PLR0913, PLR0917 - one per option
    """Show what fires now."""
    from streaming_app.alerts.store import read_alerts, shown  # noqa: PLC0415 - --help needs none of these
    from streaming_app.core.alert import FIRING, PENDING, RESOLVED  # noqa: PLC0415
    from streaming_app.serve import printing, running  # noqa: PLC0415
    from streaming_app.serve.warehouse import Warehouse, quoted  # noqa: PLC0415

    states = [FIRING, *([PENDING] if pending else []), *([RESOLVED] if resolved else [])]
    condition = f"cluster = {quoted(cluster)} AND state IN ({', '.join(map(quoted, states))})"
    found = read_alerts(Warehouse(warehouse), condition)
    if as_json:
        click.echo(printing.as_json([shown(alert) for alert in found]))
    elif found:
        rows = [
            {
                "STATE": alert.state,
                "SEVERITY": alert.severity,
                "RULE": alert.rule,
                "GROUP": alert.group_id,
                "SINCE": alert.opened_at or alert.pending_since,
                "UNSENT": ", ".join(f"{d.sink} ({d.error or 'waiting'})" for d in alert.deliveries if not d.sent_at),
                "SUMMARY": alert.summary,
            }
            for alert in found
        ]
        click.echo(printing.columns(rows))
    else:
        click.echo("Nothing fires.")
    idle = running.warning(warehouse, cluster)
    if idle:
        click.echo(idle, err=True)
    if check and any(alert.state == FIRING for alert in found):
        raise SystemExit(1)


@click.command()
@located
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@explained
def status(warehouse: Place, cluster: str, as_json: bool) -> None:
    """Show in one screen whether the job runs, how far behind it is, what fires, how big the tables are."""
    from streaming_app.serve import printing  # noqa: PLC0415 - --help needs none of these
    from streaming_app.serve import status as told  # noqa: PLC0415

    now = datetime.now(timezone.utc)
    found = told.status(warehouse, cluster, now)
    if as_json:
        click.echo(printing.as_json(found))
        return
    for line in told.lines(found, now):
        click.echo(line)
    for rows in (found["firing"], found["tables"]):
        if rows:
            click.echo("\n" + printing.columns([{name.upper(): value for name, value in row.items()} for row in rows]))
