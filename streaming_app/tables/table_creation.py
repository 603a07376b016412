"""Creates the Delta tables, and opens those that exist.

`schemas/tables/` defines the meaning of the columns; this module defines Delta's properties of the tables.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from streaming_app.errors import StorageError
from streaming_app.tables.arrow import arrow_type
from streaming_app.tables.data_files import BOUNDED
from streaming_app.tables.definitions import FORMAT_PROPERTY, WAREHOUSE_FORMAT, Table, tables
from streaming_app.tables.formats import ADVICE, unwritable_feature, why_refused
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import REQUESTS, describe_error
from streaming_app.threads import in_parallel

LOG_RETENTION_HOURS = 3
_PROPERTIES = {
    FORMAT_PROPERTY: str(WAREHOUSE_FORMAT),
    "delta.enableDeletionVectors": "false",  # Spark's default may differ; many readers refuse them
    "delta.checkpointInterval": "50",  # with a commit a second, the default of 10 would be costly
    # A commit a second leaves many files, and each commit lists the log: with 170,000 files it took five times as long.
    # Users have the history in group_events; old versions only serve time travel and concurrent readers.
    "delta.logRetentionDuration": f"interval {LOG_RETENTION_HOURS} hours",
    "delta.deletedFileRetentionDuration": f"interval {LOG_RETENTION_HOURS} hours",
}
_REPLACED = {  # whole tables, about every half minute: old versions would soon be larger than everything else
    "delta.logRetentionDuration": "interval 30 minutes",
    "delta.deletedFileRetentionDuration": "interval 30 minutes",
}
_TABLE_PROPERTIES = dict.fromkeys(("broker_facts", "inputs", "lag", "log_ends", "task_copies"), _REPLACED)
_LOG, _FIRST_COMMIT = "_delta_log", f"{0:020}.json"


def create_missing(warehouse: Location, existing: Collection[str]) -> set[str]:
    """Create the tables that are not among the existing ones; return their names.

    Raises StorageError if the warehouse cannot be written.
    """
    missing = [definition for definition in tables() if definition.name not in existing]
    try:
        for definition in missing:
            location = warehouse / definition.name
            names = (location / _LOG).names()
            if any(name.endswith(".json") for name in names) and not _has_beginning(names):
                location.remove_directory()  # what is left of a deleted table
            create(location, definition, job_properties(definition))
    except (DeltaError, OSError) as error:
        raise StorageError(f"Cannot write the warehouse {warehouse}: {describe_error(error)}") from None
    return {definition.name for definition in missing}


def existing_tables(warehouse: Location) -> dict[str, DeltaTable]:
    """Return the tables that exist, by name. Raises StorageError if this release refuses one, or cannot use it.

    Uses delta-rs, which opens a table in milliseconds; Spark would run a job for each.
    """
    places = [warehouse / definition.name for definition in tables()]
    found = zip(places, in_parallel(_open, places, REQUESTS), strict=True)
    return {location.name: opened for location, opened in found if opened is not None}


def _open(location: Location) -> DeltaTable | None:
    try:
        opened = location.delta_table()
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        with suppress(OSError):
            if not _has_beginning((location / _LOG).names()):
                return None
        raise StorageError(f"Cannot read the warehouse {location.parent}: {describe_error(error)}") from None
    if reason := why_refused(location, opened):
        raise StorageError(reason)
    if reason := unwritable_feature(opened):
        raise StorageError(f"{location} {reason}: {ADVICE}")
    return opened


def _has_beginning(names: Collection[str]) -> bool:
    """Return whether a log with these files has a beginning: its first commit, or a checkpoint.

    Without it, later files cannot be read. A commit leaves such a log if the table is deleted at the same moment.
    """
    return _FIRST_COMMIT in names or any(".checkpoint." in name for name in names)


def create(location: Location, definition: Table, configuration: Mapping[str, str]) -> None:
    """Create a table of the warehouse if it does not exist. Raises as `create_table` does."""
    create_table(location, schema_of(definition), configuration, ["cluster"], definition.about)


def create_table(
    location: Location,
    schema: pa.Schema | Schema,
    configuration: Mapping[str, str],
    partition_by: Sequence[str] = (),
    description: str | None = None,
) -> None:
    """Create a table; do nothing if another job does so at the same moment. Raises DeltaError and OSError."""
    try:
        DeltaTable.create(
            str(location),
            schema,
            mode="error",
            configuration={**configuration},
            storage_options=location.storage_options,
            raise_if_key_not_exists=False,  # for properties of our own
            partition_by=[*partition_by],
            description=description,
            # Else delta-rs repeats the creation on top of what another job has created and written meanwhile.
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except DeltaError:
        if not _has_beginning((location / _LOG).names()):
            raise


def job_properties(definition: Table) -> dict[str, str]:
    """Return the Delta properties of a table that the job writes."""
    # queries filter by it; statistics of other columns would only cost time
    statistics = BOUNDED if BOUNDED in definition.names else ""
    return {**_PROPERTIES, **_TABLE_PROPERTIES.get(definition.name, {}), "delta.dataSkippingStatsColumns": statistics}


def schema_of(definition: Table) -> pa.Schema:
    """Return the schema of a table, with its comments."""
    columns = definition.columns
    return pa.schema([pa.field(one.name, arrow_type(one.type), metadata={"comment": one.about}) for one in columns])
