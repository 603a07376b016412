"""What commands with `--check` share: a job that has died, or tables that are not up to date, are an error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

import click

from streaming_app.tables.location import Location

Command = TypeVar("Command", bound=Callable[..., Any])

_MAX_AGE_SECONDS = 120.0  # a job that writes to an object store writes a heartbeat every 35 s


def max_age_option(command: Command) -> Command:
    """Add --max-age."""
    return click.option(
        "--max-age",
        default=_MAX_AGE_SECONDS,
        show_default=True,
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="With --check: how old the tables may be. For jobs that run at intervals, longer than an interval.",
    )(command)


def report_staleness(warehouse: Location, cluster: str, max_age: float) -> bool:
    """Return whether the tables are not up to date, and print why. Raises WarehouseError."""
    from streaming_app.queries.freshness import find_staleness  # noqa: PLC0415 - not loaded by --help
    from streaming_app.queries.output import cell  # noqa: PLC0415
    from streaming_app.tables.heartbeat_file import read_heartbeat  # noqa: PLC0415

    now = datetime.now(timezone.utc)
    line = find_staleness(read_heartbeat(warehouse, cluster), cluster, now, timedelta(seconds=max_age))
    if line:
        click.echo(cell(line), err=True)
    return line is not None
