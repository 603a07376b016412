"""Relation H over a fifth of the histories; `tests/long` plays all of them."""

from collections.abc import Sequence

import pytest

from streaming_app.health.verdict import OFF
from tests.histories.history import History
from tests.histories.judged import name_of
from tests.histories.world import World
from tests.relations.engine import a_fifth, excepted, play, random_of, told, verdicts
from tests.relations.hidden import KINDS, MAY_BE_OFF, Hidden, out_of_order, violations

pytestmark = pytest.mark.slow


def check_hidden(history: History, shares: Sequence[float] = ()) -> None:
    """Hide each kind of part, after these shares of the time; by default from the start or from the middle on."""
    world, whole = World.of(history), play(history)
    if not world.lag:
        return  # nothing flows, so that nothing can be hidden
    for kind in KINDS:
        name = history.name, kind.name
        for share in shares or [random_of("begin", *name).choice((0.0, 0.5))]:
            begin = history.watched_from + share * (history.seconds - history.watched_from)
            hidden = Hidden.of(world, kind, random_of(*name), begin)
            other = play(history, transform=lambda _world, hidden=hidden: hidden.world)
            times = history.watched_from, begin, history.seconds
            allowed = OFF if excepted(history, MAY_BE_OFF) else None
            found = [
                one for one in violations(whole, other, kind, hidden.groups, times) if not one.endswith(f"is {allowed}")
            ]
            assert not found, (kind.name, begin, found)


def check_order(history: History) -> None:
    """Return the answers in another order."""
    whole, other = play(history), play(history, transform=lambda one: out_of_order(one, random_of(history.name)))
    assert (told(whole), verdicts(whole)) == (told(other), verdicts(other))


@pytest.mark.parametrize("history", a_fifth("hidden"), ids=name_of)
def test_what_is_hidden_makes_nothing_better_and_changes_no_other_group(history: History) -> None:
    check_hidden(history)


@pytest.mark.parametrize("history", a_fifth("out of order")[::3], ids=name_of)
def test_the_order_of_the_answers_changes_nothing(history: History) -> None:
    check_order(history)
