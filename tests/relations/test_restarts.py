"""Relation S on a fifth of all histories and a few random ones; `tests/long` has the others."""

import pytest

from tests.histories.history import History
from tests.histories.judged import ALL, name_of
from tests.relations.engine import a_fifth, play, told
from tests.relations.restarts import check_restarts

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("history", a_fifth("S"), ids=name_of)
def test_a_job_that_is_killed_or_away_tells_what_is_so_and_since_when(history: History) -> None:
    check_restarts(history, 2)


@pytest.mark.parametrize("start", [11_000.0, 13_770.0])
def test_groups_that_stopped_reading_one_topic_one_after_the_other_keep_their_times_when_a_job_starts_late(
    start: float,
) -> None:
    history = next(one for one in ALL if one.name.startswith("Three applications with state of their own"))
    whole, late = (sorted((one.group_id, one.since) for one in told(play(history, start=at))) for at in (None, start))
    assert whole == late
