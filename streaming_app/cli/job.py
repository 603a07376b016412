"""The command `run`: runs the job."""

import click

from streaming_app.cli.options import job_options, require_server
from streaming_app.cli.printing import echo
from streaming_app.config.load import LoadedConfig
from streaming_app.config.settings import JobConfig
from streaming_app.job import run as job


@click.command
@job_options
@click.option("--once", is_flag=True, help="Process the records that are in the topic, then exit.")
@click.option(
    "--reset", is_flag=True, help="Delete this cluster's groups and read the topic from the beginning; history is kept."
)
def run(loaded: LoadedConfig, once: bool, reset: bool) -> None:
    """Run the job: read the offsets topic and update the tables. SIGTERM or Ctrl-C stops it cleanly."""
    require_server(loaded.settings.bootstrap_server)
    job.run(JobConfig(once=once, reset=reset, **dict(loaded.settings)), echo)
