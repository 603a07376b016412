"""`streams-groups jars`: fetches the jars before the first start, for hosts without network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming_app.cli.options import Command, handle_errors
from streaming_app.cli.printing import echo, echo_error
from streaming_app.text import megabytes

if TYPE_CHECKING:
    from streaming_app.jvm.jars import JarSet


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
    """Fetch the jars of Spark's Kafka connector ahead, for hosts without network."""


@jars.command()
@_jar_options
@click.option(
    "--class-archive",
    is_flag=True,
    help="Also make an archive of Spark's classes, 190 MB, with which `run` starts faster (Java 17). It fits this "
    "machine's Java and these paths. Without the option, `run` makes one in the cache after ten minutes.",
)
@handle_errors
def fetch(directory: Path | None, demo: bool, class_archive: bool) -> None:
    """Fetch the jars that `run` needs. A host without network uses a copy of the directory by STREAMS_GROUPS_JARS."""
    from streaming_app.jvm import class_archive as archives  # noqa: PLC0415 - not loaded by --help
    from streaming_app.jvm import jars as of_jvm  # noqa: PLC0415

    for jar_set in _jar_sets(demo=demo):
        if not jar_set.checksums:
            echo_error(f"Warning: there is no list of {jar_set.what}: Spark downloads them at its start")
            continue
        files = of_jvm.copy_jars(jar_set, directory, echo) if directory else of_jvm.fetch_jars(jar_set, echo)
        size = sum(file.stat().st_size for file in files)
        echo(f"{directory or 'cache'}: {jar_set.what}, {len(files)} files, {megabytes(size)}")
        if class_archive and jar_set == of_jvm.connector_jars():
            echo("Making an archive of Spark's classes (a minute) ...")
            absolute = [file.absolute() for file in files]
            made = archives.make_archive(absolute, directory and directory.absolute())
            echo(f"{directory or 'cache'}: {made.name if made else 'another process makes the archive'}")
    if directory is not None:
        echo(f"To use them: export {of_jvm.DIRECTORY_VARIABLE}={directory.absolute()}")


def _jar_sets(*, demo: bool) -> list[JarSet]:
    from streaming_app.jvm.jars import connector_jars, kafka_jars  # noqa: PLC0415 - not loaded by --help

    return [connector_jars(), *([kafka_jars()] if demo else [])]
