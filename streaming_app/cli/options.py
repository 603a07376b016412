"""Options that commands share, what is configured in their place, and how expected failures become a line on stderr."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from streaming_app.config import environment
from streaming_app.job import defaults
from streaming_app.serve.place import Place

if TYPE_CHECKING:
    from streaming_app.config.load import Loaded

Command = TypeVar("Command", bound=Callable[..., Any])

# Click reads these itself, so that a command which needs no more of the environment loads no more.
_READ_BY_CLICK = {"WAREHOUSE", "CLUSTER"}
# What commands other than the job's take of the configuration.
_SHARED = {"bootstrap_server", "command_config", "warehouse", "cluster"}


def _as_place(text: str) -> Place:
    try:
        return Place.of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar=environment.FILE,
    show_envvar=True,
    metavar="FILE",
    help="YAML file with any of these options and more; STREAMS_GROUPS_... variables win over it, flags over both.",
)
_warehouse = click.option(
    "--warehouse",
    type=_as_place,
    metavar="PLACE",
    envvar=environment.PREFIX + "WAREHOUSE",
    default=defaults.WAREHOUSE,
    show_default=True,
    show_envvar=True,
    help="Directory of the Delta tables, or its URI: s3a://, abfss://, gs://, hdfs://.",
)
_cluster = click.option(
    "--cluster",
    envvar=environment.PREFIX + "CLUSTER",
    default=defaults.CLUSTER,
    show_default=True,
    help="Name of the Kafka cluster; a warehouse may hold several.",
)
_server = click.option(
    "--bootstrap-server",
    metavar="HOST:PORT,...",
    help="The Kafka brokers to ask first; needed, here or in the configuration.",
)
_properties = click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Kafka client properties file (security.protocol, sasl.*, ssl.*).",
)
_dialect = click.option(
    "--dialect",
    default=defaults.DIALECT,
    show_default=True,
    metavar="NAME",
    help="Tag numbers: shipped (what Kafka released) or kip-1331 (the text of that KIP).",
)
_of_the_job = {
    "bootstrap_server": _server,
    "command_config": _properties,
    "config": _config,
    "warehouse": _warehouse,
    "cluster": _cluster,
    "topic": click.option("--topic", default=defaults.TOPIC, show_default=True, help="The topic to read."),
    "dialect": _dialect,
    "trigger": click.option(
        "--trigger",
        default=defaults.TRIGGER_SECONDS,
        show_default=True,
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="Least time between batches.",
    ),
    "max_offsets_per_trigger": click.option(
        "--max-offsets-per-trigger",
        default=defaults.MAX_OFFSETS_PER_TRIGGER,
        show_default=True,
        type=click.IntRange(min=1),
        help="Bounds a batch while catching up.",
    ),
    "retention_days": click.option(
        "--retention-days",
        default=defaults.RETENTION_DAYS,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True, max=defaults.MOST_RETENTION_DAYS),
        help="How long history, quarantine and deleted groups are kept.",
    ),
    "conf": click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting, as for spark-submit."),
    "metrics_listen": click.option(
        "--metrics-listen", metavar="HOST:PORT", help="Where /metrics, /health and /ready are served."
    ),
}


def located(command: Command) -> Command:
    """Add --config, --warehouse and --cluster. Of what is configured, only what the command has flags for is read."""

    @functools.wraps(command)
    def configured(*args: Any, config: Path | None, **flags: Any) -> Any:  # noqa: ANN401 - whatever the command takes
        if config or not _READ_BY_CLICK.issuperset(environment.variables()):
            settings, given = _loaded(config, only=_SHARED & flags.keys()).settings, _given(flags)
            flags |= {name: getattr(settings, name) for name in settings.model_fields_set if name not in given}
        if flags.get("bootstrap_server", "") is None:
            refuse_without_server()
        return command(*args, **flags)

    return _config(_warehouse(_cluster(configured)))  # type: ignore[return-value]


def connected(command: Command) -> Command:
    """Add --bootstrap-server and --command-config."""
    return _server(_properties(command))


def governed(command: Command) -> Command:
    """Add --config and every flag of the job. The command gets all that is in force as its argument `loaded`."""

    @functools.wraps(command)
    def configured(*args: Any, config: Path | None, **flags: Any) -> Any:  # noqa: ANN401 - whatever the command takes
        of_the_job = {name: flags.pop(name) for name in _of_the_job if name in flags}
        return command(*args, loaded=_loaded(config, _given(of_the_job)), **flags)

    of_all: Callable[..., Any] = configured
    for option in reversed(_of_the_job.values()):
        of_all = option(of_all)
    return of_all  # type: ignore[return-value]


def spelled(command: Command) -> Command:
    """Add --dialect. Which names there are is checked by those who load the definitions."""
    return _dialect(command)


def refuse_without_server() -> None:
    """Raise the error for a command that was told of no broker in any way."""
    raise click.MissingParameter(
        f"Or set {environment.PREFIX}BOOTSTRAP_SERVER, or bootstrap_server in the file that --config names.",
        param_hint="'--bootstrap-server'",
        param_type="option",
        ctx=click.get_current_context(),
    )


def explained(command: Command) -> Command:
    """Turn the errors that commands expect into `Error: one line`, exit code 1."""

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the command takes
        from streaming_app.job.errors import JobError  # noqa: PLC0415 - --help needs none of these
        from streaming_app.local.errors import LocalError  # noqa: PLC0415
        from streaming_app.serve.warehouse import WarehouseError  # noqa: PLC0415

        try:
            return command(*args, **kwargs)
        except (JobError, LocalError, WarehouseError) as error:
            raise click.ClickException(" ".join(str(error).split())) from None
        except BrokenPipeError:
            raise  # click ends quietly
        except OSError as error:  # a full disk, a file that may not be read
            where = f": {error.filename}" if error.filename else ""
            raise click.ClickException(f"Cannot go on: {error.strerror or error}{where}") from None

    return guarded  # type: ignore[return-value]


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Those that stand on the command line; --conf as the mapping that it stands for."""
    context = click.get_current_context()
    given = {
        name: value
        for name, value in flags.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if "conf" in given:
        pairs = [entry.partition("=") for entry in given["conf"]]
        if any(not equals for _, equals, _ in pairs):  # not which: its value may be a secret
            raise click.UsageError("--conf takes KEY=VALUE")
        given["conf"] = {key: value for key, _, value in pairs}
    return given


def _loaded(file: Path | None, flags: Mapping[str, Any] | None = None, only: Collection[str] | None = None) -> Loaded:
    """What is in force; what is wrong with it ends the command: exit code 2 for flags, 1 for anything else."""
    from streaming_app.config.errors import ConfigError, FlagError  # noqa: PLC0415 - --help needs none of these
    from streaming_app.config.load import load, slips  # noqa: PLC0415

    for variable, meant in slips():
        click.echo(f"Warning: {variable} says nothing; did you mean {meant}?", err=True)
    try:
        return load(file, flags, only)
    except FlagError as error:
        raise click.UsageError("\nError: ".join(error.lines)) from None
    except ConfigError as error:
        raise click.ClickException("\nError: ".join(error.lines)) from None
