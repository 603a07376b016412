"""Options that commands share, and the one place where expected failures become a line on stderr and exit code 1."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_warehouse = click.option(
    "--warehouse",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="STREAMS_GROUPS_WAREHOUSE",
    default=Path("warehouse"),
    show_default=True,
    show_envvar=True,
    help="Directory of the Delta tables.",
)
_cluster = click.option(
    "--cluster", default="default", show_default=True, help="Name of the Kafka cluster; a warehouse may hold several."
)


def located(command: Command) -> Command:
    """Add --warehouse and --cluster."""
    return _warehouse(_cluster(command))


def connected(command: Command) -> Command:
    """Add --bootstrap-server and --command-config."""
    server = click.option(
        "--bootstrap-server", required=True, metavar="HOST:PORT,...", help="The Kafka brokers to ask first."
    )
    config = click.option(
        "--command-config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Kafka client properties file (security.protocol, sasl.*, ssl.*).",
    )
    return server(config(command))


def spelled(command: Command) -> Command:
    """Add --dialect. Which names there are is checked by those who load the definitions."""
    dialect = click.option(
        "--dialect",
        default="shipped",
        show_default=True,
        metavar="NAME",
        help="Tag numbers: shipped (what Kafka released) or kip-1331 (the text of that KIP).",
    )
    return dialect(command)


def explained(command: Command) -> Command:
    """Turn the errors that commands expect into `Error: one line`, exit code 1."""

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the command takes
        from streaming_app.job.errors import JobError  # noqa: PLC0415 - --help needs none of these
        from streaming_app.local.errors import LocalError  # noqa: PLC0415
        from streaming_app.serve.warehouse import WarehouseError  # noqa: PLC0415

        try:
            return command(*args, **kwargs)
        except (JobError, LocalError, WarehouseError) as error:
            raise click.ClickException(" ".join(str(error).split())) from None
        except BrokenPipeError:
            raise  # click ends quietly
        except OSError as error:  # a full disk, a file that may not be read
            where = f": {error.filename}" if error.filename else ""
            raise click.ClickException(f"Cannot go on: {error.strerror or error}{where}") from None

    return guarded  # type: ignore[return-value]
