"""The command `demo`: runs the job with a local broker."""

import click

from streaming_app.cli.options import warehouse_options
from streaming_app.sandbox.demo import run_demo
from streaming_app.tables.location import Location


@click.command
@warehouse_options()
@click.option("--web", is_flag=True, help="Keep the groups and the job running, and serve the page, until Ctrl-C.")
@click.option("--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="Address of the page.")
def demo(warehouse: Location, cluster: str, web: bool, listen: str) -> None:
    """Start a local Kafka broker, streams groups and the job, print the tables, then stop them all."""
    run_demo(warehouse, cluster, click.echo, page=listen if web else None)
