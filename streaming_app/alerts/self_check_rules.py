"""The rule about groups whose rows the job itself found to differ from what the brokers describe."""

from __future__ import annotations

from streaming_app.alerts.alert import Finding
from streaming_app.alerts.rule import (
    HOUR,
    EvaluationContext,
    Rule,
    Threshold,
    Thresholds,
    format_time,
    is_recent,
    to_iso,
)
from streaming_app.job_status import DifferingGroup
from streaming_app.text import first_of

_FIELDS_IN_SUMMARY = 3  # the details have more


def _differs(group: DifferingGroup, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    agreed_at = group.agreed_at
    if agreed_at is not None and not is_recent(agreed_at, thresholds["window"], context.now):
        return None
    fields = first_of([name for name, _ in group.fields], _FIELDS_IN_SUMMARY, group.field_count)
    if agreed_at is None:
        summary = f"{group.group_id}: the tables differ from the broker in {fields}"
    else:
        summary = f"{group.group_id}: the tables differed from the broker in {fields}, until {format_time(agreed_at)}"
    details: dict[str, object] = {"fields": dict(group.fields), "field_count": group.field_count}
    if group.repair is not None:
        summary += f"; {group.repair}"
        details["repair"] = group.repair
    if agreed_at is not None:
        details["agreed_at"] = to_iso(agreed_at)
    return Finding(group.since, summary, details)


SELF_CHECK_RULES = (
    Rule(
        name="StreamsGroupsSelfCheckFailed",
        find=_differs,
        for_seconds=None,
        thresholds={"window": Threshold(HOUR, "how long it fires after the group agreed again", seconds=True)},
        meaning=(
            "The job compares its tables with the brokers' StreamsGroupDescribe after each start and once an hour, and "
            "this group differed twice, a minute apart, although the job had read everything. It then reads the "
            "group's records again, from the beginning of their partition, and replaces the row; the history stays as "
            "it is. The alert has the fields that differed and the result. It resolves an hour after the group agreed "
            "again. Until then other alerts about the group may be wrong."
        ),
        queries={
            "What do the tables hold?": (
                "SELECT state, group_epoch, assignment_epoch, topology_epoch, member_count, updated_at,\n"
                "  source_partition, last_offset FROM groups WHERE group_id = 'GROUP_ID'"
            ),
            "Could records of the group not be decoded?": (
                "SELECT timestamp, error_kind, message, partition, q.offset FROM quarantine q\n"
                "WHERE group_id = 'GROUP_ID' ORDER BY timestamp DESC LIMIT 20"
            ),
            "What happened last, according to the log?": (
                "SELECT at, kind, member_id, old, new, e.offset FROM group_events e\n"
                "WHERE group_id = 'GROUP_ID' ORDER BY at DESC, e.offset DESC LIMIT 30"
            ),
        },
        steps=(
            "The row was replaced and the group agrees: find out what wrote the table. Nothing but the job may write "
            "into the warehouse; a table restored from a backup and a second job on an object store are the usual "
            "causes. Otherwise report a bug, with the fields that differed.",
            "Its records give the same row, and some are in `quarantine`: the log has changes that this release cannot "
            "read, see StreamsGroupsUndecodableRecords.",
            "Its records give the same row, and the broker does not know the group: a coordinator drops an empty group "
            "from its memory, without a record, when a client of another group type joins with its id. The group is "
            "there again once the coordinator has loaded the partition again.",
            "The row changed all the time: the next check tries again. Run `streams-groups verify` meanwhile.",
            "Many groups differ: start the job once with `--reset`, which reads the topic from the beginning.",
        ),
    ),
)
"""In the order of the runbook."""
