"""`streams-groups web`: the page."""

from __future__ import annotations

from pathlib import Path

import click

from streaming_app.cli.options import handle_errors, warehouse_options
from streaming_app.tables.location import Location

_MISSING = "The page needs more packages: pip install 'streams-groups[web]'"


@click.command()
@warehouse_options
@click.option("--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="Where it is served.")
@click.option(
    "--bootstrap-server",
    "brokers",
    metavar="HOST:PORT,...",
    help="The Kafka brokers to ask for a topology description when a reader wants it; otherwise none is asked.",
)
@click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Kafka client properties file (security.protocol, sasl.*, ssl.*).",
)
@click.option("--base-path", default="", metavar="PATH", help="Path of the page, for a proxy that does not strip it.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name under which the page is reached, such as that of a proxy; localhost and IP addresses always are.",
)
@click.option(
    "--auth-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Who may read it: lines USER:PASSWORD or Bearer TOKEN.",
)
@handle_errors
def web(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    listen: str,
    brokers: str | None,
    command_config: Path | None,
    base_path: str,
    allowed_hosts: tuple[str, ...],
    auth_file: Path | None,
) -> None:
    """Serve a page that shows the groups, their topologies, tasks, history and alerts, until Ctrl-C."""
    try:
        from streaming_app.page.server import serve  # noqa: PLC0415 - not loaded by --help
    except ImportError:
        raise click.ClickException(_MISSING) from None
    from streaming_app.kafka.security import SecurityError, read_properties, security_settings  # noqa: PLC0415
    from streaming_app.page.settings import PageSettings, check_base_path, check_listen, read_credentials  # noqa: PLC0415

    try:
        check_listen(listen)
        path = check_base_path(base_path)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        properties = read_properties(command_config) if command_config else {}
        security = security_settings(properties)
    except SecurityError as error:
        raise click.ClickException(f"--command-config: {error}") from None
    settings = PageSettings(
        listen=listen,
        base_path=path,
        allowed_hosts=frozenset(name.lower() for name in allowed_hosts),
        credentials=read_credentials(auth_file) if auth_file else None,
        bootstrap_server=brokers,
        broker_properties=properties,
        broker_security=security,
    )
    serve(warehouse, cluster, settings, click.echo)
