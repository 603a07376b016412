"""The rules about topology descriptions (KIP-1331): of a group, of many groups, and of the plugin. Data only.

When each of those for a group fires is in `description_findings`.
"""

from __future__ import annotations

from operator import attrgetter

from streaming_app.alerts.description_findings import (
    find_failed,
    find_lost,
    find_missing,
    find_not_solicited,
    find_uncertain,
    find_unsolicited,
)
from streaming_app.alerts.problem import INFO
from streaming_app.alerts.rule import (
    DAY,
    HOUR,
    MINUTE,
    NOT_DEAD,
    GroupRule,
    Rule,
    Threshold,
)
from streaming_app.alerts.survey import LostDescription
from streaming_app.groups.state_rules import EMPTY, SOLICITABLE_STATUSES

_MISSING, _NOT_SOLICITED = "StreamsGroupDescriptionMissing", "StreamsGroupDescriptionNotSolicited"
_LOST = "StreamsGroupDescriptionLost"
_WITH_MEMBERS = NOT_DEAD - {EMPTY}
_UPGRADED_FOR = {
    "upgraded_for": Threshold(7 * DAY, "for a group that never had one: since no other got its first", seconds=True)
}
_HISTORY = (
    "SELECT at, kind, old, new FROM group_events e\n"
    "WHERE group_id = 'GROUP_ID' AND kind IN ('topology_epoch', 'description_status', 'stored_description_epoch',\n"
    "  'failed_description_epoch', 'unsolicited_push')\n"
    "ORDER BY at DESC, e.offset DESC LIMIT 30"
)
_STATUS = (
    "SELECT description_status, description_since, topology_epoch, stored_description_epoch,\n"
    "  failed_description_epoch, solicitable, member_count, stale_member_count\n"
    "FROM groups WHERE group_id = 'GROUP_ID'"
)
_MEMBERS = (
    "SELECT member_id, client_id, client_host, member_epoch, topology_epoch, stale_topology\n"
    "FROM members WHERE group_id = 'GROUP_ID' ORDER BY stale_topology DESC, member_id"
)
_CLIENT_LOG = (
    "The broker logs nothing when its plugin refuses a description, and the client does: search the application's "
    "log, at WARN, for `Topology description push failed with`, which is followed by the error and by the plugin's "
    "own text. After that line the client waits until the broker asks again. `Topology description push failed with "
    "retriable exception; will retry on next poll` and `Coordinator error ... Will rediscover and retry` mean that "
    "it tries again by itself, `push rejected with UNKNOWN_MEMBER_ID` that it joins again first, and `failed with "
    "non-retriable exception` that the request was not answered. Check that the plugin's store is available and has "
    "free space."
)

DESCRIPTION_RULES = (
    GroupRule(
        name="StreamsGroupUnsolicitedDescription",
        find=find_unsolicited,
        for_seconds=None,
        thresholds={"window": Threshold(HOUR, "how long it fires after a push", seconds=True)},
        states=NOT_DEAD,
        about=attrgetter("last_unsolicited_push_at"),
        meaning=(
            "A member pushed its topology description although the broker had no reason to ask for it: it was already "
            "stored, or had been rejected permanently. The broker accepts such a push, so it can replace the stored "
            "description by a different one, and each push costs a call of the plugin. Kafka's own client only sends "
            "when it is asked; if it repeats a push because the response was lost, that may be counted here, but no "
            "more than once or twice."
        ),
        queries={
            "When were the pushes?": _HISTORY,
            "Which members could have sent them?": _MEMBERS,
        },
        steps=(
            "One push, and none since: do nothing; the alert resolves by itself.",
            "They continue: find the client. The records do not name the sender: compare the times with the broker's "
            "request log (`StreamsGroupTopologyDescriptionUpdate`), and find out which application or tool does not "
            "use Kafka's own client.",
            "Check that the stored description is still correct (`kafka-streams-groups.sh --describe --topology`).",
        ),
    ),
    GroupRule(
        name=_NOT_SOLICITED,
        find=find_not_solicited,
        severity=INFO,
        for_seconds=30 * MINUTE,
        thresholds=_UPGRADED_FOR,
        states=_WITH_MEMBERS,
        statuses=SOLICITABLE_STATUSES,
        about=lambda group: not group.solicitable,
        requires_descriptions=True,
        meaning=(
            "The topology description is not stored, and the broker will ask no member for it: every member runs an "
            "older topology, or every member that could be asked is offline. It does not recover by waiting. The group "
            "itself processes as usual. A rolling upgrade may cause this for a while; half an hour is longer than it "
            "usually takes."
        ),
        queries={
            "Why is no member asked?": _STATUS,
            "Which members run which topology?": _MEMBERS,
        },
        steps=(
            "All members are stale: complete the upgrade. The members that brought the new topology have left again.",
            "All members are offline (epoch -2, static members that are expected to return): start them, or wait until "
            "they are removed after the group's `streams.session.timeout.ms`.",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionFailed",
        find=find_failed,
        states=NOT_DEAD,
        statuses=frozenset({"FAILED"}),
        meaning=(
            "The broker's plugin rejected the topology description permanently. The broker does not ask for it again "
            "in this topology epoch. The group itself processes as usual."
        ),
        queries={"When, and what happened before?": _HISTORY, "What is the status now?": _STATUS},
        steps=(
            _CLIENT_LOG
            + " The usual reasons for a permanent rejection are a description that is too large, or content that the "
            "plugin does not accept.",
            "Fix the cause first. A client of Kafka 4.4 always sends topology epoch 0, and the broker does not ask "
            "again for the same epoch: stop the application, delete the group once it is Empty (its offsets go with "
            "it), and start the application again.",
        ),
    ),
    GroupRule(
        name=_MISSING,
        find=find_missing,
        severity=INFO,
        for_seconds=90 * MINUTE,
        thresholds=_UPGRADED_FOR,
        states=_WITH_MEMBERS,
        statuses=frozenset({"NEVER_STORED", "STALE"}),
        about=attrgetter("solicitable"),
        requires_descriptions=True,
        meaning=(
            "The broker has no description of the group's current topology, although there is a member that it would "
            "ask. It asks again after 30 seconds, then after twice as long each time, up to an hour, with a jitter of "
            "20 %. The first seven waits together take 64 minutes, at most 76: after 90 minutes it was asked for and "
            "not sent eight times, too often for a transient error. It fires for a group that had a description "
            "before. Clients before Kafka 4.4 are never asked, so for another group it fires only once the clients of "
            "the cluster are upgraded: nine of ten groups had a description, none got its first one for a week, and a "
            "broker asked for one since this group has had none. The group itself processes as usual."
        ),
        queries={
            "What is the status now?": _STATUS,
            "Which members could be asked?": _MEMBERS,
            "Which other groups are affected?": (
                "SELECT group_id, state, description_status, description_since FROM groups\n"
                "WHERE solicitable AND description_status IN ('NEVER_STORED', 'STALE') ORDER BY description_since"
            ),
        },
        steps=(
            "Only this group: its clients are older than Kafka 4.4 and do not support descriptions, or its "
            "configuration has `topology.description.push.enabled=false`, which no record shows, or they fail to send "
            "one: see the log of the application.",
            "Many groups at once: the cause is with the brokers or their plugin.",
            "The cluster should not keep descriptions: set `descriptions: never`.",
        ),
    ),
    GroupRule(
        name="StreamsGroupDescriptionUncertain",
        find=find_uncertain,
        for_seconds=20 * MINUTE,
        states=_WITH_MEMBERS,
        statuses=frozenset({"UNCERTAIN"}),
        about=attrgetter("solicitable"),
        requires_descriptions=True,
        meaning=(
            "The broker recorded that it is about to call its plugin (stored epoch -2), but never recorded the result: "
            "the plugin keeps failing, though not permanently, or the broker crashed during the call. It is unknown "
            "what the plugin has stored. The broker asks again after 30 seconds, then after twice as long each time; "
            "five attempts take at most 19 minutes. The group itself processes as usual."
        ),
        queries={"What happened, and when?": _HISTORY, "What is the status now?": _STATUS},
        steps=(
            _CLIENT_LOG + " Once it works, the next push corrects the status, within about an hour.",
            "Many groups at once: the cause is with the brokers or their plugin.",
        ),
    ),
)
"""In the order of the runbook."""


LOST_RULES: tuple[Rule[LostDescription], ...] = (
    Rule(
        name=_LOST,
        find=find_lost,
        for_seconds=90 * MINUTE,
        meaning=(
            "The group's records say that its description is stored, and the brokers' plugin does not return it: it "
            "has none (NOT_STORED), or it fails (ERROR). The log does not show that, so the job asks: once after each "
            "push, then once a day, and once an hour while it is so; 90 minutes are two such answers. The broker will "
            "not ask the members again, as it takes the description for stored. The group itself processes as usual, "
            "and the table `descriptions` has what the job fetched before (`text`, `fetched_at`)."
        ),
        queries={
            "What did the broker say, and what was fetched before?": (
                "SELECT topology_epoch, status, status_since, asked_at, fetched_at, stored_at FROM descriptions\n"
                "WHERE group_id = 'GROUP_ID' AND is_newest"
            ),
            "Which other descriptions are lost?": (
                "SELECT group_id, status, status_since FROM descriptions WHERE is_newest AND status <> 'AVAILABLE'\n"
                "ORDER BY status_since"
            ),
        },
        steps=(
            "ERROR: the plugin cannot read its store. " + _CLIENT_LOG,
            "NOT_STORED, of all groups after brokers were restarted: the plugin keeps descriptions in memory only, as "
            "Kafka's `InMemoryTopologyDescriptionPlugin` does, which is for tests. Configure one that stores them.",
            "NOT_STORED, of the groups of some coordinators: the plugin stores descriptions on each broker for itself, "
            "and the coordinator has moved.",
            "Restore the plugin's store. Without a copy of it, the members push a description again only for another "
            "topology epoch, or once the group was deleted while Empty, which deletes its offsets, too.",
        ),
    ),
)
