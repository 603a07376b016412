"""The rules about incidents: one for each bad verdict, with what to do about it. Data.

An incident has the rule of its worst verdict. What is wrong, and when, is decided in `health`; the thresholds here are
the settings of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streaming_app.alerts.problem import CRITICAL, HEALTH, WARNING, Finding
from streaming_app.alerts.rule import EvaluationContext, Rule, RuleSettings, Threshold, Thresholds
from streaming_app.groups.not_ready import missing_sources
from streaming_app.health.verdict import (
    BEHIND,
    BROKER_AWAY,
    DEFAULTS,
    DOWN,
    LOSING,
    RESTORING,
    STALLED,
    UNSTABLE,
    HealthSettings,
    Verdict,
)

_PREFIX = "StreamsGroup"
MISSING_TOPIC = "missing_topic"
"""The kind of cause whose name is a topic; that of a broker is `BROKER_AWAY`."""


@dataclass(frozen=True, kw_only=True)
class HealthRule(Rule[Verdict]):
    """The rule of the problems with one verdict."""

    find: Callable[[Verdict, Thresholds, EvaluationContext], Finding | None] = lambda *_: None
    """Not called: the verdicts of a step are, see `AlertEngine`."""
    verdict: str
    settings: Mapping[str, str]
    """Threshold to field of `HealthSettings`."""


def rule_of(verdict: str) -> str:
    """Return the name of the rule for incidents with this verdict."""
    return f"{_PREFIX}{verdict}"


def subject_of(rule: str) -> str:
    """Return the subject of the problems of a rule: the rule, or `HEALTH`."""
    return HEALTH if rule in _NAMES else rule


def finding_of(group_id: str, verdict: Verdict) -> Finding:
    """Return what a bad verdict on a group says to its owner."""
    return Finding(
        verdict.since,
        f"{group_id} is {verdict.verdict}: {verdict.why}",
        {"verdict": verdict.verdict, **verdict.evidence},
        verdict.severity,
        verdict.verdict,
    )


def causes_of(verdict: Verdict) -> Sequence[str]:
    """Return what is proven to be the cause of a bad verdict, and may be that of other groups, too."""
    if missing := missing_sources(str(verdict.evidence.get("reason", ""))):
        return [f"{MISSING_TOPIC}:{topic}" for topic in missing]
    broker = verdict.evidence.get(BROKER_AWAY)
    return [f"{BROKER_AWAY}:{broker}"] if broker else []


def health_settings(settings: Mapping[str, RuleSettings]) -> HealthSettings:
    """Return the settings of the verdicts from those of the rules; of a rule that is disabled, the defaults."""
    seconds: dict[str, Any] = {
        field: settings[rule.name].thresholds[name]
        for rule in HEALTH_RULES
        if rule.name in settings
        for name, field in rule.settings.items()
    }
    return HealthSettings(**seconds)


def _seconds(field: str, about: str) -> Threshold:
    return Threshold(getattr(DEFAULTS, field), about, seconds=True)


_STATE_HISTORY = (
    "SELECT at, kind, old, new FROM group_events e\n"
    "WHERE group_id = 'GROUP_ID' AND kind IN ('state', 'not_ready_reason') ORDER BY at DESC, e.offset DESC LIMIT 40"
)
_MEMBERS_LEFT = (
    "SELECT at, kind, member_id, client_host, old FROM group_events e\n"
    "WHERE group_id = 'GROUP_ID' AND kind IN ('member_joined', 'member_left')\n"
    "ORDER BY at DESC, e.offset DESC LIMIT 20"
)
_LAG = (
    'SELECT topic, "partition", status, lag, lag_seconds, committed_offset, committed_at, task_id, client_host,\n'
    "  process_id\n"
    "FROM lag WHERE group_id = 'GROUP_ID' AND status NOT IN ('OK', 'LEFT_OVER')\n"
    'ORDER BY lag DESC NULLS LAST, topic, "partition" LIMIT 50'
)
_LAG_HISTORY = (
    "SELECT observed_at, sum(lag) AS lag, count(lag) AS of_partitions, max(lag_seconds) AS seconds FROM lag_history\n"
    "WHERE group_id = 'GROUP_ID' AND observed_at > now() - INTERVAL '6 hours'\n"
    "GROUP BY observed_at ORDER BY observed_at"
)
_LOST = (
    'SELECT topic, "partition", committed_offset, log_start_offset, lost_offsets, committed_at FROM lag\n'
    "WHERE group_id = 'GROUP_ID' AND lost_offsets > 0 ORDER BY lost_offsets DESC LIMIT 50"
)

HEALTH_RULES = (
    HealthRule(
        name=rule_of(LOSING),
        verdict=LOSING,
        severity=CRITICAL,
        for_seconds=None,
        thresholds={"after": _seconds("lost_after", "how long after it was seen")},
        settings={"after": "lost_after"},
        meaning=(
            "The log of partitions begins after the offset that the group has committed: records were deleted, by "
            "retention or by somebody, before the group read them. They are gone. The group goes on as "
            "`auto.offset.reset` says. The starts of logs are asked for every five minutes, so a loss is not seen if "
            "the group commits again before that. It ends when offsets have advanced there, or with "
            "`streams-groups alerts end ID --reason retired`."
        ),
        queries={"How much, and where?": _LOST, "Which partitions are behind?": _LAG},
        steps=(
            "Raise `retention.ms` or `retention.bytes` of the topic now, before more is deleted.",
            "Find out why the group is so far behind, or how long it was away: `streams-groups why --group GROUP_ID`.",
            "If the records exist elsewhere, load them again.",
        ),
    ),
    HealthRule(
        name=rule_of(DOWN),
        verdict=DOWN,
        severity=CRITICAL,
        for_seconds=None,
        thresholds={
            "after": _seconds("down_after", "without members while work waits"),
            "after_unknown": _seconds("down_unknown_after", "the same, while it is not known whether work waits"),
            "not_ready_after": _seconds("not_ready_after", "NotReady"),
            "stay_up": _seconds("stay_up", "after being started again and again, it is up after so long"),
        },
        settings={
            "after": "down_after",
            "after_unknown": "down_unknown_after",
            "not_ready_after": "not_ready_after",
            "stay_up": "stay_up",
        },
        meaning=(
            "Nothing is processed, and there is work, or that cannot be known. The group has no members, is NotReady "
            "since topics that its topology needs are missing or have partition counts that do not match, or it is "
            "started again and again and processes for less than half of the time. A group without members to which "
            "nothing waits is Off, not Down; so is one outside its `running_hours`, and one whose successor has passed "
            "its offsets: a group with the same topology, or one that `alerts.successors` declares. Nothing is learnt "
            "from the past, and how its members left makes no difference: a crash may look like a shutdown. It ends "
            "when offsets have advanced, not when members are back; a group that is deleted meanwhile stays Down. "
            "NotReady with nothing to do is a warning."
        ),
        queries={
            "When was it up, and why not?": _STATE_HISTORY,
            "Which members left last, and when?": _MEMBERS_LEFT,
            "Which topics does the topology need?": (
                "SELECT subtopology_id, source_topics, source_topic_regex, repartition_source_topics,\n"
                "  state_changelog_topics, copartition_groups\n"
                "FROM subtopologies WHERE group_id = 'GROUP_ID' ORDER BY subtopology_id"
            ),
            "How much waits?": _LAG,
        },
        steps=(
            "No members: check whether the application should run. All members left within seconds: they have one "
            "common cause, such as a bad deployment, a lost host, expired credentials or a network partition. One "
            "after the other: each instance failed by itself, often at the same record. If it is meant to run at times "
            "only, add `running_hours` for it to the configuration; if another group takes over, `alerts.successors`; "
            "if it is retired or planned: `streams-groups alerts end ID --reason retired`.",
            "`MISSING_SOURCE_TOPICS`: create the named topics, or correct the topic names in the application. Kafka's "
            "own client gives up after about two heartbeats: an application that nothing starts again must be "
            "restarted once the topics exist.",
            "`MISSING_INTERNAL_TOPICS`: the broker could not create them. Search the log of the group coordinator for "
            "the error: a missing `Create` ACL of the application, a replication factor larger than the number of "
            "brokers, or a create-topic policy.",
            "`INCORRECTLY_PARTITIONED_TOPICS`: give the named topics the same number of partitions. Kafka's own client "
            "gives up at once: restart the application.",
            "If an internal topic has the wrong number, it must be deleted, and the state in it is lost: stop every "
            "instance, then `kafka-streams-groups.sh --reset-offsets --group GROUP_ID --all-input-topics "
            "--to-earliest`, first with `--dry-run`, then with `--delete-all-internal-topics --execute`, delete the "
            "local state (`state.dir`, or `KafkaStreams#cleanUp`), and start it again. It reads again all that its "
            "source topics still hold, and writes its results again.",
            "Never use `kafka-streams-application-reset.sh` on a streams group. It is made for the classic protocol, "
            "does not see that the application runs, and without `--input-topics` deletes its internal topics at "
            "once.",
            "`TOPICS_NOT_VALIDATED`: the job is not authorized to see the topics. Grant its principal `Describe` on "
            "them, or read the status in the application's log.",
            "It is started again and again: search the application's log for the exception that stopped the stream "
            "threads, and its host or pod for an out-of-memory kill. Often it is one record that cannot be processed.",
            "It was deployed with another topology: Kafka 4.4 refuses a changed topology, even for an empty group. Its "
            "members get `INVALID_REQUEST` (`Topology updates are not supported yet`) before they join. Deploy the "
            "former version again, or give the new one another `application.id`, or delete the group first. "
            "`streams-groups diff --group GROUP_ID` shows which earlier deployments changed the topology.",
        ),
    ),
    HealthRule(
        name=rule_of(STALLED),
        verdict=STALLED,
        severity=CRITICAL,
        for_seconds=None,
        thresholds={
            "longest_timeout": _seconds("longest_rebalance", "the longest rebalance timeout that is waited for")
        },
        settings={"longest_timeout": "longest_rebalance"},
        meaning=(
            "Members have the tasks, or should have, and work waits, but no offset of these partitions has moved for "
            "five minutes, or five times as long as the group takes between two commits with work. It is critical if "
            "that is so of all partitions with work, else a warning. Or a rebalance does not end: a member has not "
            "done its part for longer than its rebalance timeout, which is `max.poll.interval.ms` of Kafka Streams, "
            "or the broker has made no assignment for minutes. It ends when the offsets move."
        ),
        queries={
            "Which partitions, whose tasks, since which commit?": _LAG,
            "Which members have not finished a rebalance?": (
                "SELECT member_id, client_id, client_host, process_id, member_state, member_epoch, updated_at,\n"
                "  rebalance_timeout_ms\n"
                "FROM members WHERE group_id = 'GROUP_ID' ORDER BY member_state = 'STABLE', updated_at"
            ),
        },
        steps=(
            "All partitions of one process: its threads hang or wait for something outside. Take a thread dump of it, "
            "and restart it; `streams-groups copies` says whether another process can take over without a restore.",
            "One partition: the record at the committed offset cannot be processed and is tried again and again. Read "
            "it with `kafka-console-consumer.sh --topic TOPIC --partition P --offset COMMITTED --max-messages 1`.",
            "With exactly-once processing, `last_stable_offset` in `lag` does not move: an open transaction of a "
            "producer holds it. `kafka-transactions.sh find-hanging --topic TOPIC` finds it.",
            "No member has the tasks: compare with the broker (`streams-groups verify`), and restart one instance: the "
            "group gets a new assignment.",
            "A member has not revoked tasks (`UNREVOKED_TASKS`): take a thread dump on its host, and restart it if it "
            "does not recover. One that left temporarily (epoch -2) keeps its tasks until its session ends: start it "
            "again. `Assigning`: search the log of the group coordinator for errors of the assignor.",
            "The topic was deleted and created again: restart the application. If it still commits nothing, stop it, "
            "and reset the offsets of the topic to the earliest.",
        ),
    ),
    HealthRule(
        name=rule_of(RESTORING),
        verdict=RESTORING,
        severity=WARNING,
        for_seconds=None,
        settings={},
        meaning=(
            "Tasks came to another member, have committed nothing since, and restore their state; retention will "
            "delete records that wait for them before they are done, by the pace that their member reports, or within "
            "the next hour where it reports nothing. Without that it is no incident: a restore may take as long as it "
            "advances, and half an hour where nothing is reported of it."
        ),
        queries={"Which partitions, and where?": _LAG},
        steps=(
            "Raise `retention.ms` of the topic until the restore is done.",
            "Configure standbys, so that another process can take over without a restore: `kafka-configs.sh "
            "--entity-type groups --entity-name GROUP_ID --alter --add-config streams.num.standby.replicas=1`. The "
            "client's `num.standby.replicas` is ignored.",
        ),
    ),
    HealthRule(
        name=rule_of(BEHIND),
        verdict=BEHIND,
        severity=WARNING,
        for_seconds=None,
        thresholds={
            "age": _seconds("behind_age", "how old the oldest record is at least"),
            "after": _seconds("behind_for", "how long it does not catch up"),
        },
        settings={"age": "behind_age", "after": "behind_for"},
        meaning=(
            "The group commits, but for 15 minutes in which it did not rebalance the lag of partitions has not fallen, "
            "or so slowly that there is lag for six more hours, and the oldest record that is not processed is more "
            "than ten minutes old. A group that catches up faster is Ok. Lag is judged by its age: an offset is a "
            "millisecond of work for one application and a second for another."
        ),
        queries={"Which partitions, and where are they?": _LAG, "Does it grow?": _LAG_HISTORY},
        steps=(
            "All processes: more is produced than the application can process. Start more instances, as long as there "
            "are tasks for them: `streams-groups lag --group GROUP --by process`.",
            "One process: its host is slower, or has more tasks than others.",
            "One partition of a topic: a key with most of the records, or a partition with other records than others.",
            "The group is meant to be behind, such as one that loads an archive: raise `age` for it under `overrides`.",
        ),
    ),
    HealthRule(
        name=rule_of(UNSTABLE),
        verdict=UNSTABLE,
        severity=WARNING,
        for_seconds=None,
        settings={},
        meaning=(
            "The group processes, but is interrupted again and again: members of one place joined and left again "
            "within ten minutes, four times in an hour; members left after less than twenty minutes three times one "
            "after the other; members joined five times as often as the group has any; or there were ten assignments "
            "in ten minutes that no member caused. Each assignment may move tasks, and a task that moves is not "
            "processed while its state is restored. A rolling restart is none of it, however large: each member "
            "leaves once, and its successor stays."
        ),
        queries={
            "When, and why?": (
                "SELECT at, kind, cause, member_id, client_host, old, new FROM group_events e\n"
                "WHERE group_id = 'GROUP_ID'\n"
                "  AND kind IN ('assignment_epoch', 'member_joined', 'member_left', 'topology_epoch')\n"
                "ORDER BY at DESC, e.offset DESC LIMIT 60"
            ),
            "Which members join and leave most often?": (
                "SELECT coalesce(instance_id, client_host) AS place, kind, count(*) AS times, max(at) AS newest\n"
                "FROM group_events WHERE group_id = 'GROUP_ID' AND kind IN ('member_joined', 'member_left')\n"
                "GROUP BY coalesce(instance_id, client_host), kind ORDER BY times DESC LIMIT 20"
            ),
        },
        steps=(
            "Members at one place: they crash, or exceed the group's `streams.session.timeout.ms` (that of the client "
            "is ignored) or the client's `max.poll.interval.ms`. Check this instance for restarts, out-of-memory kills "
            "and long pauses, and stop it until it is repaired: the others then process without interruption.",
            "All members: an autoscaler that cannot decide, or a network that comes and goes.",
            "No member caused it: topics change (`topics_changed`), or a group config (`config_changed`, "
            "`kafka-configs.sh --entity-type groups`). `unknown`: search the log of the group coordinator.",
        ),
    ),
)
"""In the order of the runbook, which is that of the verdicts."""
_NAMES = frozenset(rule.name for rule in HEALTH_RULES)
RULES_BY_VERDICT: Mapping[str, HealthRule] = {rule.verdict: rule for rule in HEALTH_RULES}

REPLACED = {
    "StreamsGroupNotReady": rule_of(DOWN),
    "StreamsGroupUnavailable": rule_of(DOWN),
    "StreamsGroupEmpty": rule_of(DOWN),
    "StreamsGroupRebalanceStuck": rule_of(STALLED),
    "StreamsGroupRebalanceStorm": rule_of(UNSTABLE),
    "StreamsGroupNoProgress": rule_of(STALLED),
    "StreamsGroupLagHigh": rule_of(BEHIND),
    "StreamsGroupTaskUnowned": rule_of(STALLED),
    "StreamsGroupOffsetsLost": rule_of(LOSING),
    "StreamsGroupTopicRecreated": rule_of(STALLED),
}
"""The rules of releases up to 0.2, and what has taken their place."""
