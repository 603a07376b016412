"""The metrics of each group, with the label `group`. Only definitions: name, help, labels, value."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.task_copies import RESTORING, CopiesSum
from streaming_app.health.verdict import Verdict
from streaming_app.metrics.metric import Metric, Sample, unix_seconds

_NOT_STALE = ("CURRENT", "NO_TOPOLOGY")  # the description is stored, or there is no topology to describe
_EPOCHS = ("group", "assignment", "topology", "validated_topology", "stored_description", "failed_description")


class GroupScrape(NamedTuple):
    """The data of one group at a scrape. `now` is in seconds since the Unix epoch."""

    snapshot: GroupSnapshot
    rebalances: int
    now: float
    copies: Mapping[str, CopiesSum] | None = None
    """Role -> the sums of its copies; None if not known."""
    verdict: Verdict | None = None


def _of_copies(value: Callable[[CopiesSum], float | None]) -> Callable[[GroupScrape], Iterable[Sample]]:
    return lambda group: [Sample(value(copies), (role,)) for role, copies in (group.copies or {}).items()]


def _restore_seconds(group: GroupScrape) -> float | None:
    ready_at = group.copies[RESTORING].ready_at if group.copies else None
    return ready_at.timestamp() - group.now if ready_at and ready_at.timestamp() > group.now else None


def _stale_seconds(group: GroupScrape) -> float | None:
    if group.snapshot.description_status in _NOT_STALE:
        return 0.0
    since = unix_seconds(group.snapshot.description_stale_since)
    return None if since is None else max(0.0, group.now - since)


LABELS_METRIC: Metric[GroupScrape] = Metric(
    "streams_group_labels",
    "1, with the labels that the configuration declares for the group: join on `cluster` and `group`.",
    lambda _group: [Sample(1)],
)
HEALTH_METRICS: tuple[Metric[GroupScrape], ...] = (
    Metric(
        "streams_group_health",
        "1 for the verdict on the group, such as Down, with its severity by the configuration (`none` if it opens no "
        "alert). The other verdicts have no series.",
        lambda group: [Sample(1, (one.verdict, one.severity or "none"))] if (one := group.verdict) else None,
        ("verdict", "severity"),
    ),
    Metric(
        "streams_group_health_since_timestamp_seconds",
        "Time since when the verdict is true, by the records and commits. The job may have decided it later.",
        lambda group: unix_seconds(group.verdict.since) if group.verdict else None,
    ),
)
"""Also of Kafka Streams with the classic protocol, like `streams_group_labels`."""
GROUP_METRICS: tuple[Metric[GroupScrape], ...] = (
    *HEALTH_METRICS,
    Metric(
        "streams_group_state",
        "1 for the current state of the group. The other states have no series.",
        lambda group: [Sample(1, (group.snapshot.state,))],
        ("state",),
    ),
    Metric(
        "streams_group_epoch",
        "Epochs of the group. `group`: the broker bumps it whenever a new assignment is needed. `assignment`: that of "
        "the newest target assignment, lower than `group` while the group is Assigning. `topology`: that of the "
        "current topology. `validated_topology`: the last topology whose topics the broker validated, -1 for none. "
        "`stored_description`: the one in the broker's plugin, -1 for none, -2 for uncertain. `failed_description`: "
        "the one that the plugin rejected permanently, -1 for none.",
        lambda group: [Sample(getattr(group.snapshot, f"{of}_epoch"), (of,)) for of in _EPOCHS],
        ("of",),
    ),
    Metric(
        "streams_group_members",
        "Members, including static members that have left temporarily.",
        lambda group: group.snapshot.member_count,
    ),
    Metric(
        "streams_group_stale_members",
        "Members that run an older topology than the group's.",
        lambda group: group.snapshot.stale_member_count,
    ),
    Metric(
        "streams_group_rebalances_total",
        "New target assignments since the job started; the first one of a group does not count. The brokers' "
        "streams-group-rebalance-count is different: it counts joins and changes of members, topics and configs, but "
        "not members that leave or are removed.",
        lambda group: group.rebalances,
    ),
    Metric(
        "streams_group_copies",
        "Standby and warm-up tasks of the group, by the brokers' last answer; absent before the first answer.",
        _of_copies(lambda copies: copies.copies),
        ("role",),
    ),
    Metric(
        "streams_group_copies_lag_offsets",
        "Sum of the offsets between these tasks and the ends of their changelogs, as clients last reported them; "
        "absent if no client reported any.",
        _of_copies(lambda copies: copies.lag),
        ("role",),
    ),
    Metric(
        "streams_group_copies_lag_unknown",
        "Tasks of this role for which no client reported a lag. If this is not 0, `streams_group_copies_lag_offsets` "
        "is a lower bound.",
        _of_copies(lambda copies: copies.unknown),
        ("role",),
    ),
    Metric(
        "streams_group_restore_remaining_seconds",
        "Estimated time until the last restoring task is done, at the rate of the clients' reports; absent while no "
        "task restores, and while the rate of a restoring task is not known.",
        _restore_seconds,
    ),
    Metric(
        "streams_group_description_status",
        "1 for the status of the group's topology description. The other statuses have no series.",
        lambda group: [Sample(1, (group.snapshot.description_status,))],
        ("status",),
    ),
    Metric(
        "streams_group_description_stale_seconds",
        "Time since the current topology epoch has no stored description; 0 if it has one.",
        _stale_seconds,
    ),
    Metric(
        "streams_group_unsolicited_descriptions_total",
        "Topology descriptions that members pushed although the broker had no reason to ask, since the group was "
        "created.",
        lambda group: group.snapshot.unsolicited_pushes,
    ),
)
