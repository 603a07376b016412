"""The command `web`: serves the page."""

import click

from streaming_app.cli.options import warehouse_options
from streaming_app.config.sections import PageSettings
from streaming_app.tables.location import Location
from streaming_app.text import split_address
from streaming_app.web import page as served
from streaming_app.web.access import Access


@click.command
@warehouse_options("page")
@click.option("--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="Address of the page.")
def web(warehouse: Location, cluster: str, listen: str, page: PageSettings | None) -> None:
    """Serve a page that shows the groups, their topologies, tasks, history and alerts, until Ctrl-C.

    It reads the section `page` of the configuration. It asks no broker.
    """
    page = page or PageSettings()
    try:
        split_address(listen)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    served.serve(warehouse, cluster, Access(listen, frozenset(page.allowed_hosts)), click.echo)
