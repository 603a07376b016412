"""The commands about alerts: `alerts` shows them, `silence` keeps those of some groups from being sent for a while."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING, Any

import click

from streaming_app.cli.options import config_sections, handle_errors, instant, warehouse_options
from streaming_app.cli.printing import echo, echo_error, echo_json, echo_rows, json_option
from streaming_app.cli.process import user_name
from streaming_app.cli.removed import CommandGroup
from streaming_app.cli.warehouse import max_age_option, open_reader, report_staleness
from streaming_app.tables.location import Location
from streaming_app.text import count, escape, utc

if TYPE_CHECKING:
    from streaming_app.config.routing import NamedIntervals, SilenceSettings
    from streaming_app.notify.silences import RecurringSilence, Silence


@click.group(cls=CommandGroup, invoke_without_command=True)
@config_sections("silences", "time_intervals")
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
@click.pass_context
@handle_errors
def alerts(  # noqa: PLR0913, PLR0917 - one per option
    context: click.Context,
    warehouse: Location,
    cluster: str,
    check: bool,
    count_silenced: bool,
    max_age: float,
    pending: bool,
    resolved: bool,
    as_json: bool,
    silences: Sequence[SilenceSettings] | None,
    time_intervals: Sequence[NamedIntervals] | None,
) -> None:
    """Show the alerts that fire now."""
    from streaming_app.alerts.alert import FIRING, PENDING, RESOLVED  # noqa: PLC0415 - not loaded by --help
    from streaming_app.notify.silences import ActiveSilences  # noqa: PLC0415
    from streaming_app.tables.alerts_table import read_alerts, to_json  # noqa: PLC0415
    from streaming_app.tables.reader import quote  # noqa: PLC0415

    if context.invoked_subcommand is not None:
        return
    states = [FIRING, *([PENDING] if pending else []), *([RESOLVED] if resolved else [])]
    condition = f"cluster = {quote(cluster)} AND state IN ({', '.join(map(quote, states))})"
    reader, _ = open_reader(warehouse, cluster, "alerts")
    found = sorted(read_alerts(reader, condition), key=lambda alert: alert.urgency)
    active = ActiveSilences(warehouse, cluster, echo_error, recurring=_recurring(silences, time_intervals))
    active.refresh()
    by = {alert.fingerprint: active.find(alert) for alert in found if alert.state != RESOLVED}
    silenced = {name: {"silence": one.id, "until": one.ends_at} for name, one in by.items() if one}
    if as_json:
        echo_json([to_json(one) | {"silenced": silenced.get(one.fingerprint)} for one in found])
    elif found:
        has_incidents = any(alert.incident_id for alert in found)
        rows = [
            {
                "STATE": alert.state,
                "SEVERITY": alert.severity,
                "RULE": alert.rule,
                "GROUP": alert.group_id,
                **({"INCIDENT": alert.incident_id} if has_incidents else {}),
                "SINCE": alert.pending_since,
                "UNSENT": ", ".join(f"{d.sink} ({d.error or 'waiting'})" for d in alert.deliveries if not d.sent_at),
                **({"SILENCED": _format_silence(silenced.get(alert.fingerprint))} if silenced else {}),
                "SUMMARY": alert.summary,
            }
            for alert in found
        ]
        echo_rows(rows)
        firing_ones = (alert.group_id for alert in found if alert.incident_id and alert.state == FIRING)
        if first := next(firing_ones, None):
            echo_error(f"Since when, why, and what will be lost: streams-groups why --group {shlex.quote(first)}")
    else:
        click.echo("No alerts are firing.")
    is_stale = report_staleness(warehouse, cluster, max_age)
    if check:
        firing = [alert.fingerprint for alert in found if alert.state == FIRING]
        # As amtool: who silences an alert does not want to be woken by it, by whatever calls this command either.
        ignored = set() if count_silenced else silenced.keys() & firing
        if ignored:
            firing_alerts = count(len(ignored), "firing alert is", "firing alerts are")
            echo_error(f"{firing_alerts} silenced and not counted: --silenced counts all.")
        if is_stale or len(firing) > len(ignored):
            raise SystemExit(1)


def _recurring(
    silences: Sequence[SilenceSettings] | None, time_intervals: Sequence[NamedIntervals] | None
) -> Sequence[RecurringSilence]:
    from streaming_app.config.routing import make_silences  # noqa: PLC0415 - not loaded by --help

    return make_silences(silences or (), time_intervals or ())


def _format_silence(silenced: Mapping[str, Any] | None) -> str | None:
    return f"until {utc(silenced['until'])} ({silenced['silence']})" if silenced else None


class _RefusedSilence(click.UsageError):
    """Wrong usage, printed as one line without the usage of the command."""

    def show(self, file: IO[str] | None = None) -> None:
        """Print the line."""
        self.ctx = None  # click prints the usage of a command that it knows
        super().show(file)


@click.group()
def silence() -> None:
    """Keep alerts of some groups from being sent for a while. They fire, and are in the table, all the same."""


@silence.command()
@warehouse_options
@click.option("--group", metavar="REGEX", required=True, help="Groups whose whole id matches.")
@click.option("--rule", metavar="NAME", help="Only this rule; required to silence an alert about the job.")
@click.option("--for", "duration", metavar="DURATION", help="How long, such as 90s, 2h or 1d; at most 30d.")
@click.option(
    "--starts-at", type=instant(), metavar="TIME", help="When it starts, such as 2026-12-24T22:00Z; default is now."
)
@click.option("--comment", metavar="TEXT", required=True, help="Why; people see it in the list.")
@handle_errors
def add(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    group: str,
    rule: str | None,
    duration: str | None,
    starts_at: datetime | None,
    comment: str,
) -> None:
    """Silence the alerts of some groups for a while. An alert that still fires at the end is then sent."""
    from streaming_app.notify.silences import SilenceStore, new_silence  # noqa: PLC0415 - not loaded by --help

    if duration is None:
        raise _RefusedSilence("Give --for, such as --for 2h: every silence ends, after 30d at the latest.")
    _check_rule(rule)
    now = datetime.now(timezone.utc)
    try:
        new = new_silence(
            group=group,
            rule=rule,
            duration=duration,
            comment=comment,
            created_by=user_name(),
            now=now,
            starts_at=starts_at,
        )
    except ValueError as error:
        raise _RefusedSilence(escape(" ".join(str(error).split()))) from None
    SilenceStore(warehouse, cluster).add(new)
    begin = f"from {utc(new.starts_at)} " if new.is_planned else ""
    echo(f"{new.id} {begin}until {utc(new.ends_at)}: {_matches(warehouse, cluster, new)}")


@silence.command("list")
@config_sections("silences", "time_intervals")
@warehouse_options
@click.option("--all", "with_ended", is_flag=True, help="Also those that ended in the last 30 days.")
@json_option
@handle_errors
def list_silences(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    with_ended: bool,
    as_json: bool,
    silences: Sequence[SilenceSettings] | None,
    time_intervals: Sequence[NamedIntervals] | None,
) -> None:
    """List the silences, the first to end first, and those of the configuration that are active now."""
    from streaming_app.notify.silences import SilenceStore  # noqa: PLC0415 - not loaded by --help

    now = datetime.now(timezone.utc)
    found = [one for one in SilenceStore(warehouse, cluster).all() if with_ended or now < one.ends_at]
    found += filter(None, (one.at(now) for one in _recurring(silences, time_intervals)))
    if as_json:
        echo_json([one.model_dump(mode="json") for one in found])
    elif found:
        rows = [
            {
                "ID": one.id,
                "STATE": "ended" if one.ends_at <= now else "pending" if now < one.starts_at else "active",
                "STARTS": one.starts_at,
                "ENDS": one.ends_at,
                "GROUP": one.group.pattern,
                "RULE": one.rule,
                "CREATED-BY": one.created_by,
                "COMMENT": one.comment,
            }
            for one in found
        ]
        echo_rows(rows)
    else:
        click.echo("No silences.")


@silence.command()
@warehouse_options
@click.argument("silence_id", metavar="ID")
@handle_errors
def expire(warehouse: Location, cluster: str, silence_id: str) -> None:
    """End a silence now. What still fires is then sent."""
    from streaming_app.notify.silences import SilenceStore  # noqa: PLC0415 - not loaded by --help

    ended = SilenceStore(warehouse, cluster).expire(silence_id, datetime.now(timezone.utc))
    echo(f"{ended.id} has ended.")


def _check_rule(rule: str | None) -> None:
    from streaming_app.alerts.evaluate import RULES  # noqa: PLC0415 - not loaded by --help

    if rule is not None and rule not in RULES:
        close = difflib.get_close_matches(rule, RULES, 1)
        suggestion = f"; did you mean {close[0]}?" if close else ""
        raise _RefusedSilence(escape(f"--rule {rule!r} is not a rule{suggestion}"))


def _matches(warehouse: Location, cluster: str, new: Silence) -> str:
    """Return what the silence is about now, so that a pattern that matches too much, or nothing, is noticed."""
    from streaming_app.alerts.alert import FIRING  # noqa: PLC0415 - not loaded by --help
    from streaming_app.tables.alerts_table import read_alerts  # noqa: PLC0415
    from streaming_app.tables.reader import WarehouseReader, quote  # noqa: PLC0415

    reader, own = WarehouseReader(warehouse), f"cluster = {quote(cluster)}"
    groups = reader.query(f"SELECT group_id FROM groups WHERE {own} AND deleted_at IS NULL")["group_id"].to_pylist()  # noqa: S608 - quoted
    firing = read_alerts(reader, f"{own} AND state = {quote(FIRING)}")
    matching = sum(1 for group_id in groups if new.group.matches(group_id))
    silenced = sum(1 for alert in firing if new.matches(alert))
    return f"{matching:,} of {len(groups):,} groups match, {silenced:,} of {len(firing):,} firing alerts are silenced"
