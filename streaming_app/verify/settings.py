"""The sections `self_check` and `task_copies` of the configuration: their keys and their valid values."""

from __future__ import annotations

from streaming_app.section import PositiveDuration, Section


class SelfCheckSettings(Section):
    """The section `self_check`."""

    enabled: bool = True
    """Whether the running job compares its tables with the brokers; never with `--once`."""
    interval: PositiveDuration = 3600.0
    """Time between two comparisons of all groups; one also follows each start, once the job has caught up."""


class TaskCopiesSettings(Section):
    """The section `task_copies`."""

    enabled: bool = True
    """Whether the running job asks the brokers for the copies of tasks; never with `--once`."""
    interval: PositiveDuration = 60.0
    """Time between two passes. Clients report their offsets every `task.offset.interval.ms`, by default 60 s."""
