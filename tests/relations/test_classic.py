"""The relations on histories with the classic protocol: a few of each class; `tests/long` plays all of them."""

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from tests.histories.classic import with_classic_protocol
from tests.histories.history import History
from tests.histories.judged import check_incident, check_ordinary, name_of
from tests.histories.outcome import Outcome, Told, seconds
from tests.histories.world import World
from tests.relations.compaction import COMPACTIONS, moments
from tests.relations.engine import Spell, a_fifth, play
from tests.relations.renamed import log_of
from tests.relations.restarts import check_restarts
from tests.relations.test_c_compacted_logs import wrong_alerts, wrong_verdicts
from tests.relations.test_hidden import check_hidden
from tests.relations.test_renamed import check_renamed, check_rows
from tests.relations.transactions import check_transactions, writes_plain_records

pytestmark = pytest.mark.slow
_SECONDS, _SETTLES = 60.0, 300.0


def some(relation: str) -> list[History]:
    """Return a part of a fifth of the histories, with the classic protocol; other ones for each relation."""
    return with_classic_protocol(a_fifth(f"classic {relation}"))[::3]


def check(history: History) -> None:
    """Assert that a history tells what it has to tell."""
    (check_incident if history.rules else check_ordinary)(history)


def check_compacted(history: History) -> None:
    """Assert that relation C holds for alerts and verdicts."""
    for start in moments(history):
        whole = play(history, start=start)
        for compaction in COMPACTIONS:
            other = play(history, start=start, transform=partial(compaction.at, start))
            found = [*wrong_alerts(history, whole, other, start), *wrong_verdicts(history, whole, other, start)]
            wrong = [one for one in found if not _is_not_known(one, other)]
            assert not wrong, (history.name, start, compaction.name, wrong)


def _is_not_known(found: object, other: Outcome) -> bool:
    """Return whether a difference is that a group had no row yet, or that it is not known since when it has members.

    A record of a group without members does not say that it is of Kafka Streams: only one with members does, which
    compaction removes. And a record does not say when its members joined.
    """
    match found:
        case Spell(other="Unknown"):  # the group has a row since then: what was before is not known
            return min(seconds(one.at) for one in other.changes if one.group_id == found.group_id) >= found.begin
        case Spell(verdict="Stalled", other="Ok"):  # as its alert below
            return found.end - found.begin <= _SETTLES
        case Spell():
            return found.other is None
        case ("missed", Told() as told):
            known = [seconds(one.at) for one in other.changes if one.group_id == told.group_id]
            return not known or min(known) > told.opened_at - _SECONDS
        case ("other", Told() as told, Told() as later):
            is_stalled = told.rule == later.rule == "StreamsGroupStalled"
            return is_stalled and told.since == later.since and later.opened_at - told.opened_at <= _SETTLES
    return False


def check_names(history: History) -> None:
    """Assert that relation N holds for alerts, verdicts and rows."""
    check_renamed(history)
    check_rows(history.name, log_of(World.of(history)))


RELATIONS: Mapping[str, Callable[[History], None]] = {
    "told": check,
    "C": check_compacted,
    "S": lambda history: check_restarts(history, 2),
    "N": check_names,
    "T": check_transactions,
    "hidden": check_hidden,
}
CASES = [
    pytest.param(name, one, id=f"{name}-{name_of(one)}")
    for name in RELATIONS
    for one in some(name)
    if name != "T" or writes_plain_records(one)
]


@pytest.mark.parametrize(("relation", "history"), CASES)
def test_a_relation_holds_for_a_history_with_the_classic_protocol(relation: str, history: History) -> None:
    RELATIONS[relation](history)
