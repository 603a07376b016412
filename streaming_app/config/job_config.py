"""The configuration of one run of the job: every setting, and the options that only `run` has."""

from __future__ import annotations

from pydantic import field_validator

from streaming_app.config.settings import BootstrapServer, Settings
from streaming_app.tables.location import Location


class JobConfig(Settings):
    """The settings of a run of the job, with the options of its command."""

    bootstrap_server: BootstrapServer
    once: bool = False
    reset: bool = False
    profile: bool = False

    @field_validator("warehouse")
    @classmethod
    def _absolute(cls, warehouse: Location) -> Location:
        return warehouse.absolute()  # Spark takes a relative path for the name of a table
