"""Valid settings that change nothing, or with which a rule never opens an alert: `check` fails, and `run` warns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

from streaming_app.alerts.catalog import rules
from streaming_app.alerts.job_conditions import JOB_CONDITIONS
from streaming_app.config.alerts import RuleSections
from streaming_app.config.settings import Settings
from streaming_app.notify.http_sink import WatchdogSink
from streaming_app.text import format_duration

_HOUR = 3_600.0
_NO_FOR: Mapping[str, str] = {"StreamsGroupUnstable": "its alert opens at once: that is how often it must happen"}
_LEAST_FOR: Mapping[str, tuple[float, str]] = {
    "StreamsGroupStalled": (60.0, "a minute counts: with less, an offset that moves could count as one that does not")
}
_LONGEST_FOR = {
    "StreamsGroupUnsolicitedDescription": _HOUR,
    "StreamsGroupOffsetsRewound": _HOUR,
    "StreamsGroupsUndecodableRecords": 24 * _HOUR,
}
"""Rule -> how many seconds its condition lasts at most."""
_OF_LAG = frozenset({"StreamsGroupBehind", "StreamsGroupLosing", "StreamsGroupOffsetsRewound"})


def without_effect(settings: Settings) -> list[str]:
    """Return a line for each setting without effect, as far as the configuration alone shows it."""
    return [f"{key} has no effect: {why}" for check in _CHECKS for key, why in check(settings)]


_Found = Iterator[tuple[str, str]]
"""Keys, and why they have no effect."""


def _of_rules(settings: Settings) -> _Found:
    for key, sections, is_override in _layers(settings):
        for rule, section in sections.items():
            at, of_all, of_catalog = f"{key}.{rule}", settings.alerts.rules.get(rule), rules()[rule]
            is_changed = section.severity not in {None, of_catalog.severity}
            is_timed = section.for_ not in {None, of_catalog.for_seconds}
            if is_override and rule in JOB_CONDITIONS:
                yield at, "the rule is about the job, and not about groups: set it in alerts.rules"
            elif section.enabled is False and (is_changed or is_timed):
                yield at, "the rule is disabled there: only enabled counts"
            elif is_override and of_all and of_all.enabled is False and section.enabled is None:
                yield at, "the rule is disabled in alerts.rules: enable it there, or here"
            elif rule in _OF_LAG and not settings.lag.enabled:
                yield at, "lag.enabled is false"
            elif section.for_ is not None and is_timed:
                least, why = _LEAST_FOR.get(rule, (0.0, ""))
                if rule in _NO_FOR or section.for_ < least:
                    yield f"{at}.for", _NO_FOR.get(rule, why)
                elif section.for_ >= (longest := _LONGEST_FOR.get(rule, inf)):
                    yield f"{at}.for", f"no alert opens: the condition lasts for {format_duration(longest)} at most"


def _unused(settings: Settings) -> _Found:
    used = {name for one in (*settings.running_hours, *settings.mute_times) for name in one.time_intervals}
    for number, named in enumerate(settings.time_intervals):
        if named.name not in used:
            yield f"time_intervals[{number}]", f"neither running_hours nor mute_times names {named.name}"
    for number, sink in enumerate(settings.sinks):
        links = sorted(sink.model_fields_set & {"page_url", "runbook_url"}) if isinstance(sink, WatchdogSink) else ()
        yield from ((f"sinks[{number}].{name}", "a watchdog gets heartbeats without links") for name in links)
    if settings.alerts.protocols == "all_groups" and not settings.lag.enabled:
        yield "alerts.protocols", "lag.enabled is false: groups of other clients have no verdict without their lag"
    if settings.alerts.protocols == "all" and not settings.classic_streams.enabled:
        yield "alerts.protocols", "classic_streams.enabled is false"


def _layers(settings: Settings) -> Iterator[tuple[str, RuleSections, bool]]:
    """Yield the key of each section of rules, the section, and whether it is an override for some groups."""
    yield "alerts.rules", settings.alerts.rules, False
    for number, one in enumerate(settings.alerts.overrides):
        yield f"alerts.overrides[{number}].rules", one.rules, True


_CHECKS: Sequence[Callable[[Settings], _Found]] = (_of_rules, _unused)
