"""The section `offsets` of the configuration: its keys and their valid values."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class OffsetsSettings(BaseModel):
    """The section `offsets`: the query that reads committed offsets, and groups of every type."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    enabled: bool = True
    """Whether the job runs this query."""
    trigger: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10.0
    """Minimum time between its batches, in seconds."""
