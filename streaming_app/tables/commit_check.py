"""Whether a warehouse refuses to write a commit over another one: without that, jobs overwrite each other's commits.

A commit is a file that must not exist yet. In a directory delta-rs makes a hard link, which some file systems do not
have (SMB, blobfuse, rclone, s3fs). In a store it sends a conditional put (`If-None-Match: *`), and some stores ignore
the condition. This module tries both with files of its own, which it removes.
"""

import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier

from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from streaming_app.errors import reason_of
from streaming_app.tables.fence import HOOKS
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import describe_error
from streaming_app.tables.table_creation import create_table
from streaming_app.threads import in_parallel

_SCHEMA = Schema([Field("none", PrimitiveType("string"))])
_COMMITS, _ROUNDS = 8, 4
"""delta-rs looks for a newer version before it commits: only commits at the same moment depend on the condition."""
ADVICE = (
    "use another one, or set single_writer: true if only one job ever writes this warehouse: if two do, even for a "
    "moment, rows are lost"
)


def why_unsafe(warehouse: Location) -> str | None:
    """Return why commits may overwrite each other in a warehouse; None if they do not. Raises OSError in one line."""
    if warehouse.is_local:
        above = (warehouse.path, *warehouse.path.absolute().parents)
        with TemporaryDirectory(dir=(directory := next(path for path in above if path.exists()))) as own:
            file = Path(own, "commit")
            file.touch()
            try:
                Path(own, "link").hardlink_to(file)
            except OSError as error:
                return f"{directory} is in a file system without hard links ({reason_of(error)}), which commits need"
        return None
    place = warehouse / f"_streams-groups-check-{uuid.uuid4()}"
    try:
        create_table(place, _SCHEMA, {})
        most = max(_commits_at_once(place, number) for number in range(_ROUNDS))
    except (DeltaError, OSError) as error:
        raise OSError(describe_error(error)) from None
    finally:
        place.remove_directory()
    return f"{warehouse} lets a commit overwrite another one: it ignores If-None-Match" if most > 1 else None


def _commits_at_once(place: Location, number: int) -> int:
    together = Barrier(_COMMITS)
    own = CommitProperties(max_commit_retries=0, app_transactions=[Transaction("check", number)])

    def commit(table: DeltaTable) -> bool:
        together.wait()  # each of the threads has one
        try:
            table.create_write_transaction(
                [], "append", schema, commit_properties=own, post_commithook_properties=HOOKS
            )
        except DeltaError:
            return False
        return True

    tables = in_parallel(lambda _: place.delta_table(), range(_COMMITS), _COMMITS)
    schema = tables[0].schema()
    return sum(in_parallel(commit, tables, _COMMITS))
