"""The heartbeat of a job, for tests that run no job."""

from datetime import datetime, timezone
from pathlib import Path

from streaming_app.job_status import JobStatus
from streaming_app.tables.heartbeat_file import HeartbeatRecord, heartbeat_path


def write_heartbeat(warehouse: Path, cluster: str = "default", **fields: object) -> HeartbeatRecord:
    """Write a current heartbeat of a job that has read everything, changed by `fields`; return it."""
    now = datetime.now(timezone.utc)
    facts = JobStatus(now, caught_up=True, caught_up_at=now)
    values = {"at": now, "every_seconds": 5, "facts": facts}
    file = heartbeat_path(warehouse, cluster)
    file.parent.path.mkdir(exist_ok=True)
    record = HeartbeatRecord.model_validate({**values, **fields})
    file.write_text(record.model_dump_json())
    return record
