"""`streams-groups jars`: fetches the jars before the first start, for hosts without network."""

from __future__ import annotations

import os
from pathlib import Path

import click

from streaming_app.cli.options import Command, handle_errors
from streaming_app.cli.printing import echo
from streaming_app.errors import SetupError
from streaming_app.text import megabytes


def _jar_options(command: Command) -> Command:
    directory = click.option(
        "--directory",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="A directory that STREAMS_GROUPS_JARS will name, instead of the cache.",
    )
    demo = click.option("--demo", is_flag=True, help="Also the jars of Kafka, which the demo starts.")
    return directory(demo(command))


@click.group()
def jars() -> None:
    """Fetch the jars of Spark's connectors ahead, for hosts without network."""


@jars.command()
@_jar_options
@click.option(
    "--class-archive",
    is_flag=True,
    help="Also make an archive of Spark's classes, 190 MB, with which `run` starts faster. It fits this machine's Java "
    "and these paths.",
)
@handle_errors
def fetch(directory: Path | None, demo: bool, class_archive: bool) -> None:
    """Fetch the jars that `run` needs. A host without network uses a copy of the directory by STREAMS_GROUPS_JARS."""
    from streaming_app.jvm import class_archive as archives  # noqa: PLC0415 - not loaded by --help
    from streaming_app.jvm.jars import DIRECTORY_VARIABLE, connector_jars, copy_jars, fetch_jars, kafka_jars  # noqa: PLC0415

    for jar_set in (connector_jars(), *([kafka_jars()] if demo else [])):
        if not jar_set.checksums:
            raise SetupError(f"There is no list of {jar_set.what}: Spark itself fetches them when the job starts")
        files = fetch_jars(jar_set, echo) if directory is None else copy_jars(jar_set, directory, echo)
        size = sum(file.stat().st_size for file in files)
        echo(f"{directory or 'cache'}: {jar_set.what}, {len(files)} files, {megabytes(size)}")
    if directory is not None:
        os.environ[DIRECTORY_VARIABLE] = str(directory.absolute())  # the archive fits the jars in this place
    if class_archive:
        echo("Making an archive of Spark's classes (a minute) ...")
        echo(f"{directory or 'cache'}: {archives.make_archive().name}")
    if directory is not None:
        echo(f"To use them: export {DIRECTORY_VARIABLE}={directory.absolute()}")
