"""The metrics of each group, which carry the label `group`. Data, and where the values come from."""

from __future__ import annotations

from typing import NamedTuple

from streaming_app.core.facts import GroupFacts
from streaming_app.metrics.metric import Metric, Sampled, seconds, value

_NOT_STALE = ("CURRENT", "NO_TOPOLOGY")  # the description is stored, or there is nothing to describe


class OfGroup(NamedTuple):
    """What a scrape knows of a group. `now` is in seconds of the Unix epoch."""

    facts: GroupFacts
    rebalances: int
    now: float


def _stale_seconds(group: OfGroup) -> float | None:
    if group.facts.description_status in _NOT_STALE:
        return 0.0
    since = seconds(group.facts.description_stale_since)
    return None if since is None else max(0.0, group.now - since)


GROUP_METRICS: tuple[Metric[OfGroup], ...] = (
    Metric(
        "streams_group_state",
        "gauge",
        "1 for the state that the group is in; the other states have no series.",
        lambda group: [Sampled(1, (group.facts.state,))],
        ("state",),
    ),
    Metric(
        "streams_group_state_since_timestamp_seconds",
        "gauge",
        "When the group entered its state, by the broker's clock.",
        value(lambda group: seconds(group.facts.state_since)),
    ),
    Metric(
        "streams_group_epoch",
        "gauge",
        "Group epoch: bumped whenever a new assignment is needed.",
        value(lambda group: group.facts.group_epoch),
    ),
    Metric(
        "streams_group_assignment_epoch",
        "gauge",
        "Group epoch of the newest target assignment; behind streams_group_epoch while the group is Assigning.",
        value(lambda group: group.facts.assignment_epoch),
    ),
    Metric(
        "streams_group_topology_epoch",
        "gauge",
        "Epoch of the group's topology; absent while it has none.",
        value(lambda group: group.facts.topology_epoch),
    ),
    Metric(
        "streams_group_validated_topology_epoch",
        "gauge",
        "Topology epoch whose topics the broker found in order; -1 for none.",
        value(lambda group: group.facts.validated_topology_epoch),
    ),
    Metric(
        "streams_group_stored_description_epoch",
        "gauge",
        "Topology epoch whose description the broker's plugin holds; -1 for none, -2 for uncertain.",
        value(lambda group: group.facts.stored_description_epoch),
    ),
    Metric(
        "streams_group_failed_description_epoch",
        "gauge",
        "Topology epoch whose description the broker's plugin rejected for good; -1 for none.",
        value(lambda group: group.facts.failed_description_epoch),
    ),
    Metric(
        "streams_group_members",
        "gauge",
        "Members, static members that are away included.",
        value(lambda group: group.facts.member_count),
    ),
    Metric(
        "streams_group_stale_members",
        "gauge",
        "Members that run an older topology than the group's.",
        value(lambda group: group.facts.stale_member_count),
    ),
    Metric(
        "streams_group_rebalances_total",
        "counter",
        "New target assignments since the job started; a group's first is none.",
        value(lambda group: group.rebalances),
    ),
    Metric(
        "streams_group_description_status",
        "gauge",
        "1 for the status of the group's topology description; the other statuses have no series.",
        lambda group: [Sampled(1, (group.facts.description_status,))],
        ("status",),
    ),
    Metric(
        "streams_group_description_stale_seconds",
        "gauge",
        "How long the present topology's epoch has been without a stored description; 0 while it has one.",
        value(_stale_seconds),
    ),
    Metric(
        "streams_group_unsolicited_descriptions_total",
        "counter",
        "Descriptions that the broker accepted without having reason to ask for them, in this life of the group.",
        value(lambda group: group.facts.unsolicited_pushes),
    ),
    Metric(
        "streams_group_solicitable",
        "gauge",
        "1 if the broker, with a plugin and no back-off running, would ask some member for the description.",
        value(lambda group: group.facts.solicitable),
    ),
)
