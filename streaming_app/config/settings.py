"""Every key of the configuration: its type, its default, and what it may be. The sections' own keys stand with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from streaming_app.alerts.settings import AlertSettings
from streaming_app.alerts.sinks.settings import SinkList
from streaming_app.job import defaults
from streaming_app.metrics.settings import MetricsSettings
from streaming_app.serve.place import Place

_ADDRESS = re.compile(r"[^\s,:]+:\d+|\[[^\s,\]]+\]:\d+")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def _addresses(text: str) -> str:
    if not all(_ADDRESS.fullmatch(one) for one in text.split(",")):
        raise ValueError(f'must be HOST:PORT, several with commas between them, not "{text}"')
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f'must be letters, digits, ".", "_" and "-", not "{text}"')
    return text


def _place(where: Any) -> Place:  # noqa: ANN401 - whatever YAML holds
    if not isinstance(where, Place | Path | str) or not str(where):
        raise PydanticCustomError("path_type", "must be a path")
    return Place.of(where)


def _dialect(name: str) -> str:
    if name != defaults.DIALECT:
        from offsets_decoder import SHIPPED, dialects  # noqa: PLC0415 - the definitions, which few need

        if name not in (names := (SHIPPED, *dialects())):
            raise ValueError(f'must be one of {", ".join(names)}, not "{name}"')
    return name


def _texts(pairs: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    """Spark takes text: `true` and `4` need no quotes in YAML."""
    if not isinstance(pairs, Mapping):
        return pairs
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value
        for key, value in pairs.items()
    }


BootstrapServer = Annotated[str, AfterValidator(_addresses)]
WarehousePlace = Annotated[Place, PlainValidator(_place), PlainSerializer(str, return_type=str)]
_Days = Annotated[float, Field(gt=0, le=defaults.MOST_RETENTION_DAYS, allow_inf_nan=False)]


class Settings(BaseModel):
    """What a YAML file, the environment and flags may say; the names are the file's keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    bootstrap_server: BootstrapServer | None = None
    command_config: Path | None = None
    warehouse: WarehousePlace = Place(defaults.WAREHOUSE)
    state_dir: Path | None = None
    """The local directory of the lock and of Spark's log, for a warehouse that is not local."""
    cluster: Annotated[str, AfterValidator(_name)] = defaults.CLUSTER
    topic: Annotated[str, Field(min_length=1, max_length=249)] = defaults.TOPIC
    dialect: Annotated[str, AfterValidator(_dialect)] = defaults.DIALECT
    trigger: Annotated[float, Field(ge=0, allow_inf_nan=False)] = defaults.TRIGGER_SECONDS
    """Seconds."""
    max_offsets_per_trigger: Annotated[int, Field(gt=0)] = defaults.MAX_OFFSETS_PER_TRIGGER
    retention_days: Annotated[float, Field(gt=0, le=defaults.MOST_RETENTION_DAYS, allow_inf_nan=False)] = (
        defaults.RETENTION_DAYS
    )
    conf: Annotated[Mapping[str, str], BeforeValidator(_texts)] = {}
    """Settings of Spark."""
    alerts: AlertSettings = AlertSettings()
    sinks: SinkList = ()
    metrics: MetricsSettings = MetricsSettings()
