"""The options that commands share, their values from the configuration, and the handling of expected errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from streaming_app.cli.printing import LineError
from streaming_app.cli.process import abandon_threads
from streaming_app.config import defaults, environment
from streaming_app.errors import ConfigError, FlagError, UserError, reason_of
from streaming_app.tables.location import Location
from streaming_app.text import escape, format_duration, gibibytes, is_name, parse_duration, parse_instant, parse_size

if TYPE_CHECKING:
    from streaming_app.config.load import LoadedConfig

Command = TypeVar("Command", bound=Callable[..., Any])
_Value = TypeVar("_Value")

# Click reads these variables itself. If no other variable is set, a command does not load the configuration.
_READ_BY_CLICK = {"WAREHOUSE", "CLUSTER"}
# The keys of the configuration that commands other than run and check use.
_SHARED = {"bootstrap_server", "command_config", "warehouse", "cluster"}


def duration_option(name: str, default: str, text: str) -> Callable[[Command], Command]:
    """Return an option with this help for a duration as in the configuration: `90s`, `1h30m`, `PT5M`, or seconds."""
    kind = _type_of(parse_duration)
    return click.option(name, default=default, show_default=True, type=kind, metavar="DURATION", help=text)


def size(at_least: int) -> Callable[[Any], int]:
    """Return an option type for a number of bytes in Spark's notation, such as `4g`."""

    def parse(given: Any) -> int:  # noqa: ANN401 - text, or the default
        if (found := parse_size(given)) < at_least:
            raise ValueError(f"{given} is too little: at least {gibibytes(at_least, 0)} is needed")
        return found

    return _type_of(parse)


def instant() -> Callable[[Any], datetime]:
    """Return an option type for a time, such as `2026-03-14T03:12Z`, or `10m` for ten minutes ago."""
    return _type_of(lambda given: parse_instant(given, datetime.now(timezone.utc)))


def _type_of(parse: Callable[[Any], _Value]) -> Callable[[Any], _Value]:
    """Return an option type whose values `parse` returns. A ValueError of `parse` is reported as wrong usage."""

    def convert(given: Any) -> _Value:  # noqa: ANN401 - text, or the default
        try:
            return parse(given)
        except ValueError as error:
            raise click.BadParameter(escape(str(error))) from None

    return convert


_config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar=environment.FILE,
    show_envvar=True,
    metavar="FILE",
    help="YAML file with these options and more. Variables STREAMS_GROUPS_... override it; options override both.",
)
_warehouse = click.option(
    "--warehouse",
    type=_type_of(Location.of),
    metavar="LOCATION",
    envvar=environment.PREFIX + "WAREHOUSE",
    default=defaults.WAREHOUSE,
    show_default=True,
    show_envvar=True,
    help="Directory of the Delta tables, or a URI: s3a://, abfss://, gs://, hdfs://.",
)
_cluster = click.option(
    "--cluster",
    envvar=environment.PREFIX + "CLUSTER",
    default=defaults.CLUSTER,
    show_default=True,
    help="Name of the Kafka cluster; a warehouse may hold several.",
)
_bootstrap_server = click.option(
    "--bootstrap-server",
    metavar="HOST:PORT,...",
    help="The Kafka brokers to connect to first; also a key of the configuration.",
)
_command_config = click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Kafka client properties file (security.protocol, sasl.*, ssl.*).",
)
_job_flags = {
    "bootstrap_server": _bootstrap_server,
    "command_config": _command_config,
    "config": _config,
    "warehouse": _warehouse,
    "cluster": _cluster,
    "topic": click.option("--topic", default=defaults.TOPIC, show_default=True, help="The topic to read."),
    "trigger": duration_option(
        "--trigger",
        format_duration(defaults.TRIGGER_SECONDS),
        "Minimum time between batches; a number alone is seconds.",
    ),
    "conf": click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting, as for spark-submit."),
}


def warehouse_options(*sections: str) -> Callable[[Command], Command]:
    """Add --config, --warehouse and --cluster to a command, and `handle_errors`.

    Of the configuration, only the command's flags are read. The command also gets `sections` of the configuration as
    arguments with these names. They are None if there is neither a file nor a variable.
    """

    def add_options(command: Command) -> Command:
        @functools.wraps(command)
        def configured(*args: Any, **flags: Any) -> Any:  # noqa: ANN401 - the command's arguments
            _take_from_group(flags)
            config: Path | None = flags.pop("config")
            given = {name: value for name, value in _flags_given(flags).items() if name in _SHARED}
            has_more = bool(config) or not _READ_BY_CLICK.issuperset(environment.variable_names())
            if has_more or "bootstrap_server" in flags or not is_name(flags["cluster"]):
                settings = _load(config, given, only=(_SHARED & flags.keys()).union(sections)).settings
                flags |= {name: getattr(settings, name) for name in settings.model_fields_set.union(sections)}
            for name in sections:
                flags.setdefault(name, None)
            return command(*args, **flags)

        return _config(_warehouse(_cluster(handle_errors(configured))))  # type: ignore[return-value]

    return add_options


def group_options(command: Command, metavar: str = "[GROUP]...") -> Command:
    """Add the argument GROUP... and the option --group. The command gets all groups as its argument `group_ids`."""

    @click.argument("group_ids", nargs=-1, metavar=metavar)
    @click.option("--group", "more_ids", multiple=True, metavar="GROUP", help="The same as the argument GROUP.")
    @functools.wraps(command)
    def named(*args: Any, group_ids: tuple[str, ...], more_ids: tuple[str, ...], **flags: Any) -> Any:  # noqa: ANN401 - the command's arguments
        return command(*args, group_ids=tuple(dict.fromkeys((*group_ids, *more_ids))), **flags)

    return named  # type: ignore[return-value]


def one_group_option(command: Command) -> Command:
    """Add the argument GROUP and the option --group for a command about one group, which gets it as `group_id`."""

    @functools.wraps(command)
    def named(*args: Any, group_ids: tuple[str, ...], **flags: Any) -> Any:  # noqa: ANN401 - the command's arguments
        if len(group_ids) != 1:
            raise LineError(f"Give one group, as GROUP or as --group GROUP; there are {len(group_ids)}.")
        return command(*args, group_id=group_ids[0], **flags)

    return group_options(named, "[GROUP]")  # type: ignore[return-value]


def broker_options(command: Command) -> Command:
    """Add --bootstrap-server and --command-config."""
    return _bootstrap_server(_command_config(command))


def job_options(command: Command) -> Command:
    """Add --config, every flag of the job, and `handle_errors`. The command gets the configuration as `loaded`."""

    @functools.wraps(command)
    def configured(*args: Any, config: Path | None, **flags: Any) -> Any:  # noqa: ANN401 - the command's arguments
        job_flags = {name: flags.pop(name) for name in _job_flags if name in flags}
        return command(*args, loaded=_load(config, _flags_given(job_flags)), **flags)

    decorated: Callable[..., Any] = handle_errors(configured)
    for option in reversed(_job_flags.values()):
        decorated = option(decorated)
    return decorated  # type: ignore[return-value]


def require_server(bootstrap_server: str | None) -> None:
    """Raise the error of a missing option if neither a flag nor the configuration names a broker."""
    if bootstrap_server is None:
        raise click.MissingParameter(
            f"Or set {environment.PREFIX}BOOTSTRAP_SERVER, or bootstrap_server in the file that --config names.",
            param_hint="'--bootstrap-server'",
            param_type="option",
            ctx=click.get_current_context(),
        )


def handle_errors(command: Command) -> Command:
    """Print errors that users can correct as `Error: one line`, with exit code 1; 2 for an invalid configuration."""

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the command's arguments
        with abandon_threads():
            try:
                return command(*args, **kwargs)
            except ConfigError as error:
                raise _ConfigurationError(error) from None
            except UserError as error:
                raise click.ClickException(escape(" ".join(str(error).split()))) from None
            except (click.UsageError, BrokenPipeError):  # at a closed pipe click exits silently
                raise
            except click.ClickException as error:
                raise click.ClickException(escape(error.format_message())) from None
            except OSError as error:  # such as a full disk, or a file without read permission
                file = f": {error.filename}" if error.filename else ""
                raise click.ClickException(escape(f"Cannot continue: {reason_of(error)}{file}")) from None

    return guarded  # type: ignore[return-value]


def _take_from_group(flags: dict[str, Any]) -> None:
    """Use flags before a subcommand (`alerts --warehouse X end`) for the subcommand, unless it has them itself."""
    context, given = click.get_current_context(), ParameterSource.COMMANDLINE
    if (group := context.parent) is None:
        return
    for name in flags:
        if context.get_parameter_source(name) is not given and group.get_parameter_source(name) is given:
            flags[name] = group.params[name]
            context.set_parameter_source(name, given)


def _flags_given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags on the command line. The value of --conf is a mapping."""
    context = click.get_current_context()
    given = {
        name: value
        for name, value in flags.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if "conf" in given:
        pairs = [entry.partition("=") for entry in given["conf"]]
        if any(not equals for _, equals, _ in pairs):  # the error does not have the text, which may be a secret
            raise click.UsageError("--conf takes KEY=VALUE")
        given["conf"] = {key: value for key, _, value in pairs}
    return given


class _ConfigurationError(click.ClickException):
    exit_code = 2  # a supervisor does not start the job again, see deploy/systemd

    def __init__(self, error: ConfigError) -> None:
        super().__init__("\nError: ".join(map(escape, error.lines)))


def _load(
    file: Path | None, flags: Mapping[str, Any] | None = None, only: Collection[str] | None = None
) -> LoadedConfig:
    """Load the effective configuration. Raises UsageError for an invalid flag, ConfigError for a file or a variable."""
    from streaming_app.config.load import load, typo_suggestions  # noqa: PLC0415

    for variable, suggestion in typo_suggestions():
        click.echo(escape(f"Warning: {variable} is not a known variable; did you mean {suggestion}?"), err=True)
    try:
        return load(file, flags, only)
    except FlagError as error:
        raise click.UsageError("\nError: ".join(map(escape, error.lines))) from None
