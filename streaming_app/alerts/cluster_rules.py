"""The rules about many groups at once: one alert for the cluster instead of one for each group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from streaming_app.alerts.alert import Finding
from streaming_app.alerts.rule import ClusterRule, EvaluationContext, GroupFinding, Threshold, Thresholds
from streaming_app.text import first_of

_GROUPS_IN_SUMMARY, _GROUPS_IN_DETAILS = 3, 50


def _descriptions(
    affected: Sequence[GroupFinding], _thresholds: Thresholds, context: EvaluationContext
) -> Finding | None:
    since = min(one.due_at for one in affected)
    if since > context.now:
        return None
    names = sorted({one.group_id for one in affected})
    return Finding(
        since,
        f"{len(names):,} groups have no current topology description: {first_of(names, _GROUPS_IN_SUMMARY)}",
        {
            "groups": names[:_GROUPS_IN_DETAILS],
            "group_count": len(names),
            "findings": dict(sorted(Counter(one.rule for one in affected).items())),
        },
    )


CLUSTER_RULES = (
    ClusterRule(
        name="StreamsGroupsDescriptionsMissing",
        find=_descriptions,
        thresholds={"groups": Threshold(5, "from so many groups on it is one alert for the cluster")},
        replaces=frozenset(
            {
                "StreamsGroupDescriptionFailed",
                "StreamsGroupDescriptionMissing",
                "StreamsGroupDescriptionNotSolicited",
                "StreamsGroupDescriptionUncertain",
            }
        ),
        meaning=(
            "The topology descriptions of many groups are missing, uncertain or rejected at the same time, so the "
            "cause is with the brokers or their plugin and not with the applications. This alert takes the place of "
            "those for the groups, and fires when the first of them would. It stays until no such group is left. The "
            "groups themselves process as usual."
        ),
        queries={
            "Which groups are affected?": (
                "SELECT group_id, state, description_status, description_since FROM groups\n"
                "WHERE description_status NOT IN ('CURRENT', 'NO_TOPOLOGY') AND member_count > 0\n"
                "ORDER BY description_since"
            ),
        },
        steps=(
            "UNCERTAIN: the plugin's store is down. Compare `streams-group-topology-description-set-error` in the "
            "metrics of the brokers, and search the log of the group coordinators for messages of the plugin.",
            "NEVER_STORED or STALE: the brokers do not ask. Check that every broker has the plugin configured "
            "(`group.streams.topology.description.plugin.class`); one without it does not ask the groups that it "
            "coordinates.",
            "FAILED: the plugin rejects descriptions that it accepted before: its configuration or version changed.",
            "The cluster should not keep descriptions: set `descriptions: never`.",
        ),
    ),
)
"""In the order of the runbook."""
