"""The command `web`: serves the page."""

from pathlib import Path

import click

from streaming_app.cli.options import warehouse_options
from streaming_app.config.sections import PageSettings, check_base_path
from streaming_app.tables.location import Location
from streaming_app.text import split_address
from streaming_app.web import page as served
from streaming_app.web.access import Access, read_credentials


@click.command
@warehouse_options("page")
@click.option("--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="Address of the page.")
@click.option("--base-path", metavar="PATH", help="Path of the page, if a proxy forwards it without a change.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A host name under which browsers may reach the page; localhost and IP addresses are always allowed.",
)
@click.option(
    "--auth-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File with lines USER:PASSWORD or Bearer TOKEN: only these users may read the page.",
)
def web(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    listen: str,
    page: PageSettings | None,
    base_path: str | None,
    allowed_hosts: tuple[str, ...],
    auth_file: Path | None,
) -> None:
    """Serve a page that shows the groups, their topologies, tasks, history and alerts, until Ctrl-C.

    It reads the section `page` of the configuration. It asks no broker.
    """
    page = page or PageSettings()
    try:
        split_address(listen)
        path = page.base_path if base_path is None else check_base_path(base_path)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    users, names = auth_file or page.auth_file, allowed_hosts or page.allowed_hosts
    access = Access(listen, path, frozenset(names), read_credentials(users) if users else frozenset())
    served.serve(warehouse, cluster, access, click.echo)
