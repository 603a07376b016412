"""Chains of leader epochs: which epoch an offset is of, and where a log parts from what was read of it."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_app.stream.epoch_chain import Chain, EpochStart, epoch_at, find_parting, join, up_to


def chain(*starts: tuple[int, int]) -> Chain:
    return tuple(EpochStart(epoch, start) for epoch, start in starts)


class Log:
    """A log as a leader answers about it: one epoch for each record, and that of the leader."""

    def __init__(self, epochs: Iterable[int], leader: int) -> None:
        self.epochs, self.leader = list(epochs), leader

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Do what `LeaderEpochFileCache.endOffsetFor` does."""
        starts = {one: self.epochs.index(one) for one in sorted(set(self.epochs))}
        starts.setdefault(self.leader, len(self.epochs))
        if epoch == self.leader:
            return epoch, len(self.epochs)
        above = [start for one, start in starts.items() if one > epoch]
        below = [one for one in starts if one <= epoch]
        if not above:
            return -1, -1
        return (max(below) if below else epoch), min(above)

    def has_record(self, first: int, end: int) -> bool:
        return bool(self.epochs[first:end])

    def chain(self) -> Chain:
        return tuple(EpochStart(one, self.epochs.index(one)) for one in sorted(set(self.epochs)))


def test_the_epoch_of_an_offset_is_the_last_that_began_at_or_before_it() -> None:
    known = chain((3, 10), (5, 20))
    assert [epoch_at(known, offset) for offset in (9, 10, 19, 20, 99)] == [None, 3, 3, 5, 5]


def test_an_epoch_that_began_at_the_end_is_of_no_record() -> None:
    assert up_to(chain((3, 10), (5, 20)), 20) == chain((3, 10))


def test_what_a_log_has_comes_after_what_is_known_of_it() -> None:
    assert join(chain((3, 10), (4, 20)), chain((7, 20))) == chain((3, 10), (7, 20))
    assert join(chain((3, 10)), ()) == chain((3, 10))


@pytest.mark.parametrize(
    ("log", "parting"),
    [
        pytest.param(Log([1] * 5 + [4] * 5, 4), 10, id="the same leader"),
        pytest.param(Log([1] * 3, 3), 3, id="a leader of an older epoch"),
        pytest.param(Log([1] * 12 + [6] * 3, 6), 5, id="an old leader wrote more than was lost"),
        pytest.param(Log([1] * 3 + [2] * 9 + [6] * 3, 6), 3, id="another old leader did"),
    ],
)
def test_a_log_parts_from_what_was_read_where_the_first_record_is_another(log: Log, parting: int) -> None:
    assert find_parting(chain((1, 0), (4, 5)), 10, log.end_of, log.has_record) == parting


def test_an_epoch_whose_records_were_compacted_away_is_no_cut() -> None:
    # A replica that copied the log after that has no record of epoch 4, and begins epoch 6 where it has one.
    assert find_parting(chain((1, 0), (4, 5)), 10, lambda _: (1, 12), lambda *_: False) == 10


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_what_two_logs_have_in_common_is_kept(data: st.DataObject) -> None:
    runs = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=5)
    epochs: list[int] = []
    for step, length in data.draw(runs):
        epochs += [(epochs[-1] if epochs else -1) + step] * length
    cut = data.draw(st.integers(0, len(epochs)))
    leader = epochs[-1] + data.draw(st.integers(1, 3))
    log = Log(epochs[:cut] + [leader] * data.draw(st.integers(0, 10)), leader)
    assert find_parting(Log(epochs, epochs[-1]).chain(), len(epochs), log.end_of, log.has_record) == cut
