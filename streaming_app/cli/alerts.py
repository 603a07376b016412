"""The command `alerts` shows open alerts; `alerts end` ends some; `alerts mute` stops notifications for some groups."""

import shlex
from datetime import datetime, timezone
from typing import Any

import click

from streaming_app.alerts.alert import FIRING, HEALTH, PENDING, RESOLVED, STATES
from streaming_app.cli.options import warehouse_options
from streaming_app.cli.printing import LineError, echo, echo_error, echo_json, echo_rows, json_option
from streaming_app.cli.process import user_name
from streaming_app.cli.warehouse import max_age_option, open_cluster, open_reader, report_staleness
from streaming_app.config.declared import GroupTimesSettings, NamedIntervals, make_times_of
from streaming_app.errors import WarehouseError
from streaming_app.notify.mutes import Mute, Mutes, new_mute
from streaming_app.regex import given_regex
from streaming_app.tables.alerts_table import OPEN, read_alerts, to_json
from streaming_app.tables.health_tables import EndedAlerts
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, quote
from streaming_app.text import count, escape, utc


@click.group(invoke_without_command=True)
@warehouse_options("mute_times", "time_intervals")
@click.option(
    "--check", is_flag=True, help="Exit with 1 if an alert is open and not muted, or the tables are not up to date."
)
@click.option("--muted", "count_muted", is_flag=True, help="With --check: muted alerts count, too.")
@max_age_option
@click.option(
    "--pending", is_flag=True, help="Show pending alerts, too: their condition has not yet held for long enough."
)
@click.option("--resolved", is_flag=True, help="Show ended alerts, too.")
@click.option("--json", "as_json", is_flag=True, help="All columns, as JSON.")
@click.pass_context
def alerts(  # noqa: PLR0913, PLR0917 - one per option
    context: click.Context,
    warehouse: Location,
    cluster: str,
    check: bool,
    count_muted: bool,
    max_age: float,
    pending: bool,
    resolved: bool,
    as_json: bool,
    mute_times: tuple[GroupTimesSettings, ...] | None,
    time_intervals: tuple[NamedIntervals, ...] | None,
) -> None:
    """Show the open alerts."""
    if context.invoked_subcommand is not None:
        return
    states = [FIRING, *([PENDING] if pending else []), *([RESOLVED] if resolved else [])]
    condition = f"cluster = {quote(cluster)}" + ("" if resolved else " AND ended_at IS NULL")
    reader, heartbeat = open_reader(warehouse, cluster, "alerts")
    ended = () if resolved else EndedAlerts(warehouse, cluster).reasons()  # the job may not have noted it yet
    found = [one for one in read_alerts(reader, condition) if one.state in states and one.alert_id not in ended]
    found.sort(key=lambda alert: alert.urgency)
    times_of = make_times_of(mute_times or (), time_intervals or ())
    mutes = Mutes(warehouse, cluster, echo_error, times_of=times_of)
    mutes.refresh()
    by = {alert.alert_id: mutes.find(alert) for alert in found if alert.state != RESOLVED}
    muted = {name: one for name, one in by.items() if one}
    if as_json:
        echo_json([to_json(one) | {"muted": _to_json(muted.get(one.alert_id))} for one in found])
    elif found:
        has_causes = any(alert.cause for alert in found)
        rows = [
            {
                "ID": alert.alert_id,
                "STATE": STATES[alert.state],
                "SEVERITY": alert.severity,
                "RULE": alert.rule,
                "GROUP": alert.group_id,
                **({"CAUSE": alert.cause} if has_causes else {}),
                "SINCE": alert.since,
                "UNSENT": ", ".join(f"{d.sink} ({d.error or 'waiting'})" for d in alert.deliveries if not d.sent_at),
                **({"MUTED": _until(muted.get(alert.alert_id))} if muted else {}),
                "SUMMARY": alert.summary,
            }
            for alert in found
        ]
        echo_rows(rows)
        firing_ones = (alert.group_id for alert in found if alert.subject == HEALTH and alert.state == FIRING)
        if first := next(firing_ones, None):
            echo_error(f"Since when, why, and what will be lost: streams-groups why --group {shlex.quote(first)}")
    else:
        click.echo("No alerts are open.")
    for one in () if as_json else mutes.active:
        why = f": {one.reason}" if one.reason else ""
        echo_error(f"Muted until {utc(one.ends_at)} by {one.created_by}, {one.pattern.pattern}{why}")
    is_stale = report_staleness(heartbeat, cluster, max_age)
    if check:
        firing = [alert.alert_id for alert in found if alert.state == FIRING]
        # As in amtool: whoever muted an alert does not want it from a caller of this command either.
        ignored = set() if count_muted else muted.keys() & firing
        if ignored:
            open_alerts = count(len(ignored), "open alert is", "open alerts are")
            echo_error(f"{open_alerts} muted and not counted: --muted counts all.")
        if is_stale or len(firing) > len(ignored):
            raise SystemExit(1)


def _until(mute: Mute | None) -> str | None:
    return f"until {utc(mute.ends_at)}" if mute else None


def _to_json(mute: Mute | None) -> dict[str, Any] | None:
    return mute.model_dump(mode="json", include={"pattern", "ends_at", "reason", "created_by"}) if mute else None


@alerts.command()
@warehouse_options()
@click.argument("alert_id", metavar="[ID]", required=False)
@click.option("--match", "pattern", metavar="PATTERN", help="End the alerts of all groups whose whole id matches it.")
@click.option(
    "--reason",
    type=click.Choice(["retired", "planned"]),
    required=True,
    help="retired: nobody runs the group any more; planned: it is down on purpose.",
)
@json_option
def end(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location, cluster: str, alert_id: str | None, pattern: str | None, reason: str, as_json: bool
) -> None:
    """End the open alert with this ID, or many with --match, and print them. They must be about verdicts on groups.

    The job ends them at its next evaluation, and notifies the sinks.
    """
    if (alert_id is None) == (pattern is None):
        raise LineError("Give the ID of an alert, or --match PATTERN for those of many groups.")
    try:
        regex = None if pattern is None else given_regex(pattern)
    except ValueError as error:
        raise LineError(f"--match {escape(str(error))}") from None
    files, reader = EndedAlerts(warehouse, cluster), open_cluster(warehouse, cluster, "alerts")
    one = "" if alert_id is None else f" AND alert_id = {quote(alert_id)}"
    reasons, open_ones = files.reasons(), read_alerts(reader, f"cluster = {quote(cluster)} AND {OPEN}{one}")
    found = [alert for alert in open_ones if alert.alert_id not in reasons]
    if regex is not None:
        found = [alert for alert in found if alert.subject == HEALTH and regex.matches(alert.group_id or "")]
    if not found:
        what = (
            f"open alert {alert_id!r}"
            if regex is None
            else f"group with an open alert that can be ended matches {pattern!r}"
        )
        raise WarehouseError(f"No {what}: `streams-groups alerts` lists them")
    if found[0].subject != HEALTH:
        raise WarehouseError(f"{alert_id} has the rule {found[0].rule}: it ends by itself when its condition is over")
    files.end([alert.alert_id for alert in found], reason, user_name(), datetime.now(timezone.utc))
    rows = [{"ID": one.alert_id, "RULE": one.rule, "GROUP": one.group_id, "SINCE": one.since} for one in found]
    if as_json:
        echo_json([{name.lower(): value for name, value in row.items()} for row in rows])
    elif regex is not None:
        echo_rows(rows)
        echo(f"{count(len(found), 'alert has', 'alerts have')} ended: {reason}.", err=True)
    else:
        echo(f"{alert_id} has ended: {reason}.")


@alerts.command()
@warehouse_options()
@click.argument("pattern", metavar="PATTERN")
@click.option("--for", "duration", metavar="DURATION", help="How long, such as 90s, 2h or 1d, at most 30d; 0s ends it.")
@click.option("--reason", metavar="TEXT", default="", help="Why; people see it next to the alerts.")
def mute(warehouse: Location, cluster: str, pattern: str, duration: str | None, reason: str) -> None:
    """For some time, do not send the alerts of groups whose whole id matches PATTERN.

    The alerts still open, and commands and the page show them. An alert that is open at the end of the mute is sent
    then. A later mute with the same PATTERN replaces this one, so --for 0s ends it.
    """
    if duration is None:
        raise LineError("Give --for, such as --for 2h: every mute ends, after 30d at the latest.")
    now = datetime.now(timezone.utc)
    try:
        new = new_mute(pattern=pattern, duration=duration, reason=reason, created_by=user_name(), now=now)
    except ValueError as error:
        raise LineError(escape(" ".join(str(error).split()))) from None
    Mutes(warehouse, cluster).add(new)
    if new.ends_at == now:
        echo(f"{pattern} is not muted any more.")
    else:
        echo(f"{pattern} is muted until {utc(new.ends_at)}: {_matches(warehouse, cluster, new)}")


def _matches(warehouse: Location, cluster: str, new: Mute) -> str:
    """Return how many groups and alerts match now, so that a user notices a pattern that matches too many or none."""
    reader, own = WarehouseReader(warehouse, copies=True), f"cluster = {quote(cluster)}"
    reader.open_ahead("groups", "alerts")
    living = f"{own} AND deleted_at IS NULL AND group_type = coalesce(protocol, 'streams')"
    groups = reader.query(f"SELECT group_id FROM groups WHERE {living}")["group_id"].to_pylist()  # noqa: S608 - quoted
    firing = read_alerts(reader, f"{own} AND {OPEN}")
    matching = sum(1 for group_id in groups if new.pattern.matches(group_id))
    muted = sum(1 for alert in firing if new.matches(alert))
    return f"{matching:,} of {len(groups):,} groups match, {muted:,} of {len(firing):,} open alerts are muted"
