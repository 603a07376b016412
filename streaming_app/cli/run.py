"""`streams-groups run`: the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streaming_app.cli.options import handle_errors, job_options, require_server
from streaming_app.text import escape

if TYPE_CHECKING:
    from streaming_app.config.load import LoadedConfig


@click.command()
@job_options
@click.option("--once", is_flag=True, help="Process the records that are in the topic, then exit.")
@click.option(
    "--reset", is_flag=True, help="Delete this cluster's groups and read the topic from the beginning; history is kept."
)
@click.option("--profile", is_flag=True, help="Say in the line of each batch where its seconds went.")
@handle_errors
def run(loaded: LoadedConfig, once: bool, reset: bool, profile: bool) -> None:
    """Run the job: read the offsets topic and update the tables. SIGTERM or Ctrl-C stops it cleanly."""
    require_server(loaded.settings.bootstrap_server)
    from streaming_app.config.settings import JobConfig  # noqa: PLC0415 - not loaded by --help
    from streaming_app.job.run import run as run_job  # noqa: PLC0415

    config = JobConfig(once=once, reset=reset, profile=profile, **dict(loaded.settings))
    run_job(config, lambda line: click.echo(escape(line)))
