"""Every key of the configuration: its type, default and valid values. Also the options of a run of the job."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    field_validator,
)

from streaming_app.config import defaults
from streaming_app.config.alerts import AlertSettings
from streaming_app.config.declared import GroupTimesSettings, LabelsSettings, NamedIntervals
from streaming_app.config.sections import (
    GroupBudgetSettings,
    LagSettings,
    MetricsSettings,
    OffsetsSettings,
    PageSettings,
    SwitchSettings,
)
from streaming_app.notify.alertmanager import AlertmanagerSink
from streaming_app.notify.apprise import AppriseSink
from streaming_app.notify.http_sink import WatchdogSink
from streaming_app.notify.webhook import WebhookSink
from streaming_app.section import Days, Duration, FilePath, Section, did_you_mean
from streaming_app.tables.location import Location
from streaming_app.text import check_name, split_address


def _check_addresses(text: str) -> str:
    addresses = [address.strip() for address in text.split(",") if address.strip()]
    try:
        is_valid = bool(addresses) and all(split_address(address)[1] for address in addresses)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(f'must be HOST:PORT, or several separated by commas, not "{text}"')
    return ",".join(addresses)


def _to_location(value: Any) -> Location:  # noqa: ANN401 - any YAML value
    if not isinstance(value, Location | Path | str) or not str(value):
        raise ValueError("must be a path; write it in quotes")
    return Location.of(value)


# `true` and `4` need no quotes in YAML
_SparkValue = Annotated[
    str, BeforeValidator(lambda value: str(value).lower() if isinstance(value, bool | int | float) else value)
]
AnySink = Annotated[
    AlertmanagerSink | AppriseSink | WatchdogSink | WebhookSink,
    Field(discriminator="type"),
    BeforeValidator(lambda sink: {"type": None, **sink} if isinstance(sink, Mapping) else sink),
]
"""One sink. `type` decides which class. The error for an invalid one, as one without a type gets, names all types."""


def _unique_names(kind: str) -> AfterValidator:
    def check(named: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [one.name for one in named]
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two {kind} have the name {', '.join(duplicates)}: give each a different name")
        return named

    return AfterValidator(check)


SinkList = Annotated[tuple[AnySink, ...], _unique_names("sinks")]
"""The sinks of a configuration, with unique names."""
BootstrapServer = Annotated[str, AfterValidator(_check_addresses)]
WarehouseLocation = Annotated[Location, PlainValidator(_to_location), PlainSerializer(str, return_type=str)]


class Settings(Section):
    """The settings that a YAML file, the environment and flags may set; the fields are the keys of the file."""

    bootstrap_server: BootstrapServer | None = None
    command_config: FilePath | None = None
    warehouse: WarehouseLocation = Location(defaults.WAREHOUSE)
    single_writer: bool = False
    """Whether the job writes a warehouse that does not keep commits from overwriting each other."""
    state_dir: FilePath | None = None
    """The local directory for the lock and Spark's log if the warehouse is not local."""
    cluster: Annotated[str, AfterValidator(check_name)] = defaults.CLUSTER
    topic: Annotated[str, Field(min_length=1, max_length=249)] = defaults.TOPIC
    trigger: Duration = defaults.TRIGGER_SECONDS
    max_offsets_per_trigger: Annotated[int, Field(gt=0)] = 10_000_000
    retention_days: Days = 30.0
    conf: Mapping[str, _SparkValue] = {}
    alerts: AlertSettings = AlertSettings()
    sinks: SinkList = ()
    time_intervals: Annotated[tuple[NamedIntervals, ...], _unique_names("time intervals")] = ()
    running_hours: tuple[GroupTimesSettings, ...] = ()
    """When groups have to run; default: always."""
    mute_times: tuple[GroupTimesSettings, ...] = ()
    """When alerts of groups are recorded and shown, but not sent; default: never."""
    labels: tuple[LabelsSettings, ...] = ()
    """Labels of groups, for alerts, metrics, tables and the page."""
    metrics: MetricsSettings = MetricsSettings()
    group_budget: GroupBudgetSettings = GroupBudgetSettings()
    lag: LagSettings = LagSettings()
    offsets: OffsetsSettings = OffsetsSettings()
    classic_streams: SwitchSettings = SwitchSettings()
    """Whether groups of Kafka Streams with the classic protocol have rows in the tables of streams groups."""
    task_copies: SwitchSettings = SwitchSettings()
    """Whether the job asks the brokers for the copies of tasks."""
    broker_facts: SwitchSettings = SwitchSettings()
    """Whether the job asks the brokers for configs, sizes and other facts that the log does not have."""
    descriptions: SwitchSettings = SwitchSettings()
    """Whether the job fetches the stored topology descriptions."""
    page: PageSettings = PageSettings()

    @field_validator("running_hours", "mute_times")
    @classmethod
    def _are_at_intervals(
        cls, hours: tuple[GroupTimesSettings, ...], info: ValidationInfo
    ) -> tuple[GroupTimesSettings, ...]:
        known = [one.name for one in info.data.get("time_intervals", ())]
        for name in (name for one in hours for name in one.time_intervals if "time_intervals" in info.data):
            if name not in known:
                meant = did_you_mean(name, known) or ": add it to time_intervals"
                raise ValueError(f'"{name}" is not the name of a time interval{meant}')
        return hours


class JobConfig(Settings):
    """The settings of a run of the job, with the options of its command."""

    bootstrap_server: BootstrapServer
    once: bool = False
    reset: bool = False
    given_session: bool = False
    """Whether the job uses a Spark session that its caller created."""

    @field_validator("warehouse")
    @classmethod
    def _absolute(cls, warehouse: Location) -> Location:
        return warehouse.absolute()  # Spark would read a relative path as the name of a table
