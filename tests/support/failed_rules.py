"""Finds alert rules that crash while tests run.

If a rule crashes for a group, the job sets the rule aside, and its findings are missing: a test that expects none would
pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

from streaming_app.alerts import evaluate as evaluation
from streaming_app.alerts.alert import Holds


class FailedRule(NamedTuple):
    """A rule, and the group for which it raised an error."""

    rule: str
    group_id: str


@contextmanager
def note_failed_rules() -> Iterator[list[FailedRule]]:
    failed: list[FailedRule] = []
    report = evaluation.rule_failed  # type: ignore[attr-defined] # imported there, or replaced by an outer block

    def noted(group_id: str, rule: str, error: Exception) -> Holds:
        failed.append(FailedRule(rule, group_id))
        return report(group_id, rule, error)

    with patch.object(evaluation, "rule_failed", noted):
        yield failed


@contextmanager
def no_rule_fails() -> Iterator[None]:
    with note_failed_rules() as failed:
        yield
    assert not failed, f"rules failed: {sorted(set(failed))}"
