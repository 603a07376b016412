"""The command `check`: checks what the job needs, before its first start."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from streaming_app.checks.brokers import check_brokers
from streaming_app.checks.first_configuration import first_configuration
from streaming_app.checks.machine import (
    DEFAULT_HEAP,
    DRIVER_MEMORY,
    check_client_properties,
    check_machine,
    judge_memory,
    total_memory,
)
from streaming_app.checks.result import Result, failed, skipped
from streaming_app.checks.sinks import check_sinks
from streaming_app.checks.warehouse import check_warehouse
from streaming_app.cli.options import job_options, require_server
from streaming_app.cli.printing import echo, echo_error, echo_json
from streaming_app.config import show
from streaming_app.config.load import LoadedConfig
from streaming_app.config.settings import JobConfig, Settings
from streaming_app.config.without_effect import without_effect
from streaming_app.errors import SetupError
from streaming_app.job import first_look
from streaming_app.jvm import class_archive as archives
from streaming_app.jvm.jars import DIRECTORY_VARIABLE, connector_jars, copy_jars, kafka_jars
from streaming_app.kafka.properties import client_properties
from streaming_app.text import megabytes

_STATUS_WIDTH = len("warning")


@click.command
@job_options
@click.option("--send-test", is_flag=True, help="Send a test notification to every sink.")
@click.option("--show-config", is_flag=True, help="Only print the effective configuration; asks no broker.")
@click.option(
    "--write-config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Only write a first configuration for the cluster; FILE must not exist.",
)
@click.option(
    "--fetch-jars",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Only download the jars of Spark's connector, for a host without network: there, set STREAMS_GROUPS_JARS to "
    "DIR.",
)
@click.option("--demo", is_flag=True, help="With --fetch-jars: also the jars of Kafka, which the demo starts.")
@click.option(
    "--class-archive",
    is_flag=True,
    help="With --fetch-jars: also make an archive of Spark's classes, 190 MB, with which `run` starts faster. It only "
    "works with this machine's Java and these paths.",
)
@click.option("--json", "as_json", is_flag=True, help="The results, or the configuration, as JSON.")
def check(  # noqa: PLR0913, PLR0917 - one per option
    loaded: LoadedConfig,
    send_test: bool,
    show_config: bool,
    write_config: Path | None,
    fetch_jars: Path | None,
    demo: bool,
    class_archive: bool,
    as_json: bool,
) -> None:
    """Check what the job needs before its first start. Exits with 1 if a check fails.

    Prints a line for each check: Java, memory, jars, the port of the metrics, every broker, the topic, each ACL, the
    warehouse, the sinks. The last one says how many groups are Down, Stalled or Unknown now. It has the options of run.

    --show-config prints the configuration merged from defaults, file, environment and flags, without secrets. Comments
    name the keys that flags, environment and file set. With its secrets filled in, the output is a valid configuration
    file.
    """
    if (show_config, write_config is not None, fetch_jars is not None).count(True) > 1:
        raise click.UsageError("Give one of --show-config, --write-config and --fetch-jars.")
    if (demo or class_archive) and fetch_jars is None:
        raise click.UsageError("--demo and --class-archive belong to --fetch-jars.")
    if show_config:
        if as_json:
            echo_json(show.effective_values(loaded))
        else:
            click.echo(show.as_yaml(loaded), nl=False)
    elif fetch_jars is not None:
        _fetch_jars(fetch_jars, demo=demo, class_archive=class_archive)
    else:
        require_server(loaded.settings.bootstrap_server)
        if write_config is not None:
            _write_config(loaded.settings, write_config)
        else:
            _check(loaded.settings, send_test=send_test, as_json=as_json)


def _fetch_jars(directory: Path, *, demo: bool, class_archive: bool) -> None:
    for jar_set in (connector_jars(), *([kafka_jars()] if demo else [])):
        if not jar_set.checksums:
            raise SetupError(f"There is no list of {jar_set.what}: Spark itself downloads them when the job starts")
        files = copy_jars(jar_set, directory, echo)
        echo(f"{directory}: {jar_set.what}, {len(files)} files, {megabytes(sum(one.stat().st_size for one in files))}")
    os.environ[DIRECTORY_VARIABLE] = str(directory.absolute())  # the archive is for the jars at these paths
    if class_archive:
        echo("Making an archive of Spark's classes (a minute) ...")
        echo(f"{directory}: {archives.make_archive().name}")
    echo(f"To use them: export {DIRECTORY_VARIABLE}={directory.absolute()}")


def _write_config(settings: Settings, file: Path) -> None:
    if file.exists():
        raise SetupError(f"{file} exists: name another file, or remove it")
    with file.open("x", encoding="utf-8") as new:
        new.write(first_configuration(settings.bootstrap_server or "", settings.command_config))
    echo(f"Wrote {file}. Next: streams-groups check --config {file}")


def _check(settings: Settings, *, send_test: bool, as_json: bool) -> None:
    results = []
    for result in _results(settings, send_test=send_test):
        results.append(result)
        if not as_json:
            echo(f"{result.status:<{_STATUS_WIDTH}}  {result.line}")
    counts = Counter(result.status for result in results)
    if as_json:
        echo_json([result._asdict() for result in results])
    else:
        echo(", ".join(f"{number} {status}" for status, number in counts.items()))
    raise SystemExit(1 if counts["failed"] else 0)


def _results(settings: Settings, *, send_test: bool) -> Iterator[Result]:
    properties = client_properties(settings.bootstrap_server or "", settings.command_config)
    yield from (failed("configuration", one) for one in without_effect(settings))
    yield from check_machine(settings.metrics.listen, echo_error)
    yield from check_client_properties(settings.command_config, properties)
    none_failed, groups = yield from check_brokers(properties, settings.topic)
    yield judge_memory(total_memory(), settings.conf.get(DRIVER_MEMORY, DEFAULT_HEAP), groups)
    yield from check_warehouse(settings.warehouse.absolute(), settings.cluster, single_writer=settings.single_writer)
    yield from check_sinks(settings.sinks, settings.cluster, send_test=send_test)
    if none_failed:
        yield first_look.look(properties, JobConfig(**dict(settings)), echo_error)
    else:
        yield skipped(first_look.CHECK, "a check of the brokers, the topic or the ACLs has failed")
