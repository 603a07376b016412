"""Relation N over a fifth of the histories and the recorded logs; `tests/long` plays all histories."""

import re
from pathlib import Path
from typing import Any

import pytest

from streaming_app.alerts.alert import Alert
from streaming_app.config.declared import LabelsSettings, make_labels
from tests.histories.history import History
from tests.histories.judged import ALL, name_of
from tests.histories.outcome import Outcome
from tests.histories.world import World
from tests.recorded import record as recorded
from tests.recorded.record import VERSIONS, read
from tests.relations.engine import a_fifth, excepted, play, random_of, told, verdicts
from tests.relations.renamed import (
    Names,
    as_texts,
    fold,
    log_of,
    names_of,
    renamed,
    renamed_pattern,
    with_names,
    with_renamed_settings,
)
from tests.support.offsets_log import RawRecord

pytestmark = pytest.mark.slow
EXCEPTIONS = {"each has its prefix in its internal topics": "the prefix is the name of a group, which topics keep"}
NOT_IN_RECORDS = {"ids have five megabytes": "no record can hold one: strings of keys end at 32,767 bytes"}
CONFIGURED = [one for one in ALL if one.settings or one.later_settings]


def check_renamed(history: History) -> None:
    """Give the groups other names, in the configuration, too: its rules, labels and what is muted."""
    if excepted(history, EXCEPTIONS):
        return
    world = World.of(history)
    names = names_of(one.group_id for one in world.log)
    assert set(names.values()).isdisjoint(names)
    back, same = {new: old for old, new in names.items()}, {one: one for one in names}
    whole = play(history, **_declared(same))
    other = play(with_renamed_settings(history, names), transform=lambda one: renamed(one, names), **_declared(names))
    assert _told(other, back) == _told(whole, {})
    assert {back[group_id]: spells for group_id, spells in verdicts(other).items()} == verdicts(whole)


def _declared(names: Names) -> dict[str, Any]:
    """Return labels by pattern, and mute the alerts of some groups."""
    first, others = ("app|blue|.*[0-4]", "green|.*[5-9]")
    teams = {"one": first, "other": others}
    entries = [{"groups": renamed_pattern(pattern, names), "team": team} for team, pattern in teams.items()]
    muted = re.compile(renamed_pattern(others, names))

    def is_muted(one: Alert) -> bool:
        return one.group_id is not None and bool(muted.fullmatch(one.group_id))

    labels_of = make_labels([LabelsSettings.model_validate(one) for one in entries])
    return {"declared": {"labels_of": labels_of, "is_muted": is_muted}}


def _told(outcome: Outcome, back: Names) -> list[Any]:
    def with_old_names(text: str) -> str:
        for new, old in back.items():
            text = text.replace(new, old)
        return text

    alerts = [
        one._replace(group_id=back.get(one.group_id or "", one.group_id), why=with_old_names(one.why))
        for one in told(outcome)
    ]
    labels = [
        (back.get(one.group_id or "", one.group_id), one.rule, sorted(one.labels.items())) for one in outcome.all_alerts
    ]
    messages = [(at, event, len(which)) for at, event, which in outcome.notifications]
    return [sorted(alerts, key=str), sorted(labels, key=str), messages]


def check_rows(name: str, log: list[RawRecord], *, seeds: int = 1) -> None:
    """Fold a log in one batch, in batches of other sizes, in a worker, and with other names."""
    whole = as_texts(fold(log), {})
    names = names_of(one.group_id for one in log)
    back = {new: old for old, new in names.items()}
    other = with_names(log, names)
    for seed in range(seeds):
        assert as_texts(fold(log, random_of("N", name, seed)), {}) == whole
    assert as_texts(fold(other, in_worker=True), back) == whole
    assert as_texts(fold(other, random_of("N", name)), back) == whole


@pytest.mark.parametrize("history", [*a_fifth("N"), *CONFIGURED[:3]], ids=name_of)
def test_other_names_in_groups_and_configuration_and_another_order_change_nothing(history: History) -> None:
    check_renamed(history)


@pytest.mark.parametrize("version", VERSIONS)
def test_names_batches_and_workers_change_no_row_of_the_log_of_a_broker(version: str) -> None:
    check_rows(version, read(Path(recorded.__file__).parent / f"{version}.jsonl.gz")[0], seeds=3)


@pytest.mark.parametrize("history", a_fifth("N rows")[::3], ids=name_of)
def test_names_batches_and_workers_change_no_row_of_a_history(history: History) -> None:
    check_rows(history.name, log_of(World.of(history)))
