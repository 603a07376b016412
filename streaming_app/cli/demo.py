"""`streams-groups demo`: the job with a local broker and groups."""

from __future__ import annotations

import click

from streaming_app.cli.options import duration, handle_errors, warehouse_options
from streaming_app.tables.location import Location


@click.command()
@warehouse_options
@click.option(
    "--seconds", default=0.0, type=duration(), metavar="DURATION", help="Keep the groups running this much longer."
)
@click.option("--web", is_flag=True, help="Keep the groups and the job running, and serve the page, until Ctrl-C.")
@click.option("--listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="The page's address.")
@handle_errors
def demo(warehouse: Location, cluster: str, seconds: float, web: bool, listen: str) -> None:
    """Start a local Kafka broker, streams groups and the job, print the tables, then stop them all."""
    from streaming_app.sandbox.demo import run_demo  # noqa: PLC0415 - not loaded by --help

    run_demo(warehouse, cluster, click.echo, extra_seconds=seconds, page=listen if web else None)
