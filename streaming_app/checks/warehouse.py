"""Checks the warehouse: whether it can be written, has the format of this release, and another job writes to it."""

import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from deltalake.exceptions import DeltaError

from streaming_app.checks.result import FAILED, Result, failed, ok, skipped, warning
from streaming_app.errors import StorageError, WarehouseError, reason_of
from streaming_app.tables.commit_check import ADVICE, why_unsafe
from streaming_app.tables.definitions import table, tables
from streaming_app.tables.formats import BEFORE, is_older
from streaming_app.tables.heartbeat_file import read_heartbeat
from streaming_app.tables.location import Location
from streaming_app.tables.table_creation import existing_tables, schema_of
from streaming_app.tables.upgrade import seconds_of, work_of
from streaming_app.tables.upgrade_steps import lacks_columns
from streaming_app.text import duration, gibibytes

_FREE_BYTES = 1 << 30
_FULL = {errno.ENOSPC, errno.EDQUOT}


def check_warehouse(location: Location, cluster: str, *, single_writer: bool = False) -> Iterator[Result]:
    """Yield the results about the warehouse at `location`; `single_writer` is the setting."""
    place = _check_local(location.path) if location.is_local else _check_store(location)
    yield place
    if place.status == FAILED and not location.is_local:  # each further request would wait for its time-out
        yield skipped("tables", f"{location} cannot be used")
        return
    if place.status != FAILED:
        yield _check_commits(location, single_writer=single_writer)
    yield check_format(location)
    yield _check_job(location, cluster)


def _check_commits(location: Location, *, single_writer: bool) -> Result:
    check = "commits"
    try:
        reason = why_unsafe(location)
    except OSError as error:
        return failed(check, f"{location}: {reason_of(error)}", "see deploy/README.md for the settings of each store")
    if reason:
        return warning(check, f"{reason}; single_writer is true") if single_writer else failed(check, reason, ADVICE)
    return ok(check, "none overwrites another one")


def _check_local(directory: Path) -> Result:
    check, elsewhere = "warehouse", "set --warehouse to another directory"
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not existing.is_dir():
        return failed(check, f"{existing} is not a directory", elsewhere)
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"test")
    except OSError as error:
        text = f"{existing} cannot be written by user {os.getuid()}: {reason_of(error)}"
        remedy = "free some space" if error.errno in _FULL else "let this user write there"
        return failed(check, text, f"{remedy}, or {elsewhere}")
    free = shutil.disk_usage(existing).free
    text = f"{directory} can be {'written' if existing == directory else 'created'}, {gibibytes(free, 0)} are free"
    return warning(check, text, "20 GiB are advised") if free < _FREE_BYTES else ok(check, text)


def _check_store(location: Location) -> Result:
    check, name = "warehouse", f"_streams-groups-check-{uuid.uuid4()}"
    try:
        (location / name).write_text("test")
        (location / name).remove()
    except OSError as error:
        return failed(check, f"{location}: {error}", "see deploy/README.md for the settings of each store")
    return ok(check, f"{location} can be written by delta-rs; the job also writes with Hadoop's file system")


def check_format(location: Location) -> Result:
    """Return whether this release can read, or upgrade, the tables, if there are any."""
    check = "tables"
    try:
        existing = existing_tables(location)
        current = {name: one for name, one in existing.items() if not is_older(one)}
        lacking = [name for name, one in current.items() if lacks_columns(location / name, one, schema_of(table(name)))]
        work = work_of(existing)
    except (StorageError, DeltaError, OSError) as error:
        return failed(check, " ".join(str(error).split()))
    missing = [one.name for one in tables() if one.name not in existing]
    if not existing:
        return ok(check, "none yet: the job creates them")
    if work.tables:
        seconds = max(1, round(seconds_of(work, is_local=location.is_local)))
        text = f"of {BEFORE}: the job upgrades them at its start, {work}, in about {duration(seconds)}"
        return warning(check, text, "make a back-up first, since the way back is a copy")
    if lacking or missing:
        return warning(check, f"the job creates or completes {', '.join([*missing, *lacking])} at its start")
    return ok(check, f"{len(existing)}, of this release's format")


def _check_job(location: Location, cluster: str) -> Result:
    check = "other job"
    try:
        last = read_heartbeat(location, cluster)
    except (WarehouseError, OSError) as error:
        return warning(check, str(error))
    if last is not None and last.is_alive(datetime.now(timezone.utc)):
        running = f"process {last.pid} on {last.host} writes cluster {cluster!r}"
        return ok(check, f"{running}: a second job waits until this one has ended")
    return ok(check, f"no job writes cluster {cluster!r}")
