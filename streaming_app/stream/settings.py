"""The section `offsets` of the configuration: its keys and their valid values."""

from __future__ import annotations

from streaming_app.section import Duration, Section


class OffsetsSettings(Section):
    """The section `offsets`: the query that reads committed offsets, and groups of every type."""

    enabled: bool = True
    """Whether the job runs this query."""
    trigger: Duration = 10.0
    """Minimum time between its batches."""
