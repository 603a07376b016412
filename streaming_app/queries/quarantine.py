"""What the command `quarantine` shows: groups that are set aside, and kinds of records that could not be used."""

from __future__ import annotations

from typing import Any

from streaming_app.tables.reader import WarehouseReader, quote


def find_groups(reader: WarehouseReader, cluster: str) -> list[dict[str, Any]]:
    """Return the groups that are set aside, the newest first."""
    return reader.rows(
        'SELECT group_id AS "group", set_aside_at AS since, client_host AS host, set_aside_reason AS reason, '  # noqa: S608
        f"set_aside_release AS release FROM groups WHERE cluster = {quote(cluster)} "
        "AND set_aside_reason IS NOT NULL ORDER BY set_aside_at DESC, group_id"
    )


def find_records(reader: WarehouseReader, cluster: str) -> list[dict[str, Any]]:
    """Return the records in quarantine by group and error, those with the newest record first."""
    return reader.rows(
        'SELECT group_id AS "group", error_kind AS error, count(*) AS records, max(timestamp) AS newest, '  # noqa: S608
        f"min(message) AS message FROM quarantine WHERE cluster = {quote(cluster)} "
        "AND void IS NOT TRUE GROUP BY group_id, error_kind ORDER BY newest DESC NULLS LAST, group_id, error_kind"
    )
