"""Evaluates all rules over all groups and the job, except those about verdicts (`health.board`). Pure.

Theory of operation
-------------------
Rules are evaluated every few seconds. Most groups do not change in between, and most conditions cannot hold for them.
So a condition names the groups for which it may hold by their records (`is_about`), whatever the time and other groups
are. `Watched` keeps these groups, and checks a group again only when it has changed. A condition is evaluated for these
groups, for groups with other facts that matter to it (`others`), and for groups that have an open alert. Groups that
never had a description may be all of a cluster, so whether one is expected of them is decided for all at once.

Deleted groups, ids that belong to a group of other clients now, and groups that the configuration ignores are not
evaluated.
Their alerts end.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from streaming_app.alerts.alert import AlertKey, Holds, Over
from streaming_app.alerts.catalog import HEALTH_RULES
from streaming_app.alerts.engine_facts import DescriptionSupport, EngineFacts, RuleSettingsLookup, had_description
from streaming_app.alerts.group_conditions import CONDITIONS, DESCRIPTION_MISSING, SET_ASIDE, not_judged, rule_failed
from streaming_app.alerts.job_conditions import JOB_CONDITIONS
from streaming_app.groups.snapshot import GroupSnapshot, changed, ranks

_MAX_NEW_GROUPS = 100
_NEVER_DESCRIBED = "never described"  # the groups without a description of which none is expected yet
_OLD_ROW = "it is set aside: its row is as it was before"


class Watched:
    """For each rule, the groups for which its condition may hold, as of the last `update`."""

    def __init__(self, descriptions: DescriptionSupport) -> None:
        """Begin without groups. `descriptions` gets each group that changes."""
        self._descriptions = descriptions
        self._groups: Mapping[str, GroupSnapshot] = {}
        self._concerned: dict[str, dict[str, None]] = {name: {} for name in (*CONDITIONS, _NEVER_DESCRIBED)}

    def update(self, groups: Mapping[str, GroupSnapshot]) -> None:
        """Set all groups of the cluster. The caller must not change this mapping later, but pass a new one."""
        for group_id in changed(self._groups, groups):
            old, new = self._groups.get(group_id), groups.get(group_id)
            self._descriptions.group_changed(old, new)
            for concerned in self._concerned.values():
                concerned.pop(group_id, None)
            for name, condition in CONDITIONS.items():
                if new and condition.is_about(new):
                    is_never = name == DESCRIPTION_MISSING and not had_description(new)
                    self._concerned[_NEVER_DESCRIBED if is_never else name][group_id] = None
        self._groups = groups

    def candidates(self, facts: EngineFacts) -> Iterator[AlertKey]:
        """Yield the conditions that may hold."""
        for name, condition in CONDITIONS.items():
            if name != DESCRIPTION_MISSING or facts.descriptions.since is not None:
                yield from (AlertKey(name, group_id) for group_id in self._concerned[name])
            if name == DESCRIPTION_MISSING and facts.descriptions.expects_first_ones(facts.now):
                yield from (AlertKey(name, group_id) for group_id in self._concerned[_NEVER_DESCRIBED])
            yield from (AlertKey(name, group_id) for group_id in condition.others(facts.observed) or ())


Truths = dict[AlertKey, Holds | Over]
"""Whether conditions hold: of those that may hold or have an open alert, and for which it is known."""


def evaluate(facts: EngineFacts, watched: Watched, settings_of: RuleSettingsLookup) -> tuple[Truths, frozenset[str]]:
    """Evaluate the rules; those about groups only after the job has caught up.

    The second value are the newest groups beyond `_MAX_NEW_GROUPS` new ones. The first value has nothing of theirs.
    """
    truths, job = Truths(), facts.observed.job
    for name, job_condition in JOB_CONDITIONS.items():
        if job and name in settings_of(None) and (truth := job_condition(job, facts.now)):
            truths[AlertKey(name, None)] = truth
    if job is None or job.caught_up:
        failed = ((group_id, why) for group_id, why in facts.not_judged.items() if group_id in facts.observed.groups)
        truths |= {AlertKey(SET_ASIDE, group_id): not_judged(group_id, why) for group_id, why in failed}
        for key in dict.fromkeys((*watched.candidates(facts), *facts.open)):
            if key.subject in CONDITIONS and key.subject in settings_of(key.group_id):
                _check(key, facts, truths)
    return truths, _leave_out_newcomers(truths, facts)


def _check(key: AlertKey, facts: EngineFacts, truths: Truths) -> None:
    """Add whether a condition holds to `truths`. An error affects only this group."""
    subject, group_id = key.subject, key.group_id or ""
    group = facts.observed.groups.get(group_id)
    try:
        truth = CONDITIONS[subject].truth(group_id, group, facts)
    except MemoryError:  # no error of the group: the evaluation fails, and is repeated
        raise
    except Exception as error:  # noqa: BLE001 - see above
        aside = AlertKey(SET_ASIDE, group_id)
        if not isinstance(truths.get(aside), Holds):
            truths[aside] = rule_failed(group_id, subject, error)
        return
    if isinstance(truth, Holds) and group and group.set_aside_reason and subject != SET_ASIDE:
        truth = replace(truth, evidence={**truth.evidence, "cut": _OLD_ROW})
    if truth and not isinstance(truths.get(key), Holds):  # keep that a rule or the verdict failed
        truths[key] = truth


def _leave_out_newcomers(truths: Truths, facts: EngineFacts) -> frozenset[str]:
    """Remove what holds for the newest groups beyond `_MAX_NEW_GROUPS` new ones, and return these groups.

    Groups with an open alert keep what holds, so that no alert ends because of other groups.
    """
    holds = [key for key, truth in truths.items() if isinstance(truth, Holds)]
    alerted = {key.group_id for key in holds if key in facts.open}
    places = ranks(facts.observed.groups, {key.group_id for key in holds if key.group_id is not None}, facts.now)
    left_out = frozenset(one for one, place in places.items() if place > _MAX_NEW_GROUPS and one not in alerted)
    for key in holds:
        if key.group_id in left_out:
            del truths[key]
    return left_out


def watches_any(group_ids: Iterable[str], rule_settings_of: RuleSettingsLookup) -> bool:
    """Return whether a rule about groups is enabled for at least one of these groups."""
    names = {*CONDITIONS, *HEALTH_RULES}
    return any(not names.isdisjoint(rule_settings_of(group_id)) for group_id in group_ids)
