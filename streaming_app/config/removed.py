"""Keys and values of 0.2.0 that this release removed. It ignores them with a line that says what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streaming_app.alerts.catalog import replaced

_EACH_MINUTE = "nothing: the brokers are asked each minute"
REMOVED: Mapping[str, str] = {
    "alerts.group_interval": "`group_interval` of Alertmanager; a chat gets at most one message a minute for each rule",
    "alerts.group_wait": "`group_wait` of Alertmanager; a chat gets one message for all that fires within ten seconds",
    "alerts.keep_firing_for": "`for` of the rule; a problem ends once it is over",
    "alerts.max_groups_per_notification": "`streams-groups alerts`; a message names 20 groups",
    "alerts.max_new_groups": "`alerts.groups` and `alerts.ignore_groups`; at most 100 groups of the last 24 hours have "
    "alerts",
    "alerts.repeat_after": "`repeat_interval` of Alertmanager, or the repetition of the pager",
    **{f"alerts.rules.{old}": f"`{new}`, which includes it" for old, new in replaced().items()},
    "alerts.rules.StreamsGroupDescriptionMissing.upgraded_for": "`for`",
    "alerts.rules.StreamsGroupDescriptionNotCleanedUp": "`stored_description_epoch` of the Empty groups in the table "
    "`groups`",
    "alerts.rules.StreamsGroupOverBudget": "`StreamsGroupSetAside`, which fires for such a group",
    "alerts.rules.StreamsGroupTaskSkew": "`streams-groups describe --copies`, or the table `task_copies`",
    "alerts.rules.StreamsGroupTaskTwice": "`streams-groups verify`, or the table `task_copies`",
    "alerts.rules.StreamsGroupUnsolicitedDescription.window": "`for`",
    "alerts.rules.StreamsGroupWarmupStays": "`streams-groups describe --copies`, or the metric streams_group_copies",
    "alerts.rules.StreamsGroupsDescriptionPlugin": "`streams-groups check`",
    "alerts.rules.StreamsGroupsDescriptionsMissing": "`StreamsGroupDescriptionMissing`, which fires for each group; "
    "one message names all groups",
    "alerts.rules.StreamsGroupsFlood": "the metric streams_groups_left_out",
    "alerts.rules.StreamsGroupsJobStopped.silence": "`for`",
    "alerts.rules.StreamsGroupsSchemaDrift": "the metric streams_groups_job_unknown_tags_records_total",
    "alerts.rules.StreamsGroupsSelfCheckFailed": "`verify`, or the metric "
    "streams_groups_job_self_check_differing_groups",
    "alerts.rules.StreamsGroupsUndecodableRecords.window": "`for`",
    "broker_facts.interval": _EACH_MINUTE,
    "descriptions.interval": _EACH_MINUTE,
    "group_budget.events": "nothing: a batch adds at most 100,000 events of a group",
    "group_budget.steps": "nothing: a batch takes at most 5,000,000 steps for a group",
    "group_budget.topology_bytes": "`group_budget.bytes`; a topology may have half of it",
    "lag.history_interval": "`lag.history_days`; a partition has a row a minute",
    "metrics.compatibility": "the table of names of other exporters in docs/metrics.md",
    **{
        f"metrics.lag_by.{by}": f"`streams-groups lag --by {by} --json`, or SQL over the table `lag`"
        for by in ("subtopology", "process", "task")
    },
    "metrics.max_lag_series": "`metrics.groups` and `metrics.lag_by`; each metric of lag has 10,000 series",
    "page.labels": "the section `labels`, which alerts, metrics and tables have, too",
    "page.listen": "`streams-groups web --listen HOST:PORT`, a process of its own",
    "page.memory": "a limit of the unit or container of `streams-groups web`",
    "sinks.ends_after": "nothing: Alertmanager ends an alert a week after the job last sent it",
    "sinks.generator_url": "`page_url`, which is the link of an alert",
    "sinks.interval": "nothing: the URL of a watchdog is requested each minute",
    "sinks.labels": "the section `labels`, with the pattern `.*` for all groups",
    "sinks.resend": "nothing: Alertmanager gets the firing alerts each minute",
    "sinks.summary": "`streams-groups status`, or `streams-groups alerts --json` in a cron job",
    "sinks.watchdog": "a sink of type watchdog, whose URL is requested each minute",
    "sinks.type: email": "a sink of type apprise with a URL mailtos://USER:PASSWORD@HOST",
    "sinks.type: log": "the job's own output, which has a line for each change of an alert",
    "sinks.type: slack": "a sink of type apprise with a URL slack://A/B/C, the parts of the incoming webhook's URL",
    "task_copies.interval": _EACH_MINUTE,
}
"""Path of a removed key or value -> what to use instead.

A path has no index for an item of a list, but the text of the item, or `type: ...` for a sink. An entry below
`alerts.rules` is also for `alerts.overrides.rules`.
"""
_INSTEAD = {path.lower(): instead for path, instead in REMOVED.items()}  # a variable has no case


def without_removed(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values without removed keys, items and sinks, and a line about each of these."""
    lines: dict[str, None] = {}

    def is_removed(path: str) -> bool:
        instead = _INSTEAD.get(path.lower().replace("alerts.overrides.rules.", "alerts.rules."))
        if instead:
            lines[f"{path} was removed and does nothing: use {instead}"] = None
        return instead is not None

    def keep(value: Any, path: str) -> Any:  # noqa: ANN401 - any YAML value
        if isinstance(value, Mapping):
            inside = {key: f"{path}.{key}".removeprefix(".") for key in value}
            return {key: keep(value[key], here) for key, here in inside.items() if not is_removed(here)}
        if isinstance(value, list | tuple):
            return [keep(one, path) for one in value if not is_removed(f"{path}.{_name_of(one)}")]
        return value

    return keep(values, ""), list(lines)


def _name_of(item: object) -> str:
    return f"type: {item.get('type')}" if isinstance(item, Mapping) else str(item)
