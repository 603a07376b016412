"""The fastest attacks; `python -m tests.long.campaign --attacks` plays all of them."""

from collections.abc import Iterator

import pytest

from tests.long.campaign.checks import check
from tests.long.hostile.attacks import ATTACKS, FAST
from tests.long.hostile.bed import AttackBed

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackBed]:
    """One job for all."""
    with AttackBed(tmp_path_factory.mktemp("bed"), probes=1 + len(FAST), megabytes=800) as one:
        yield one


@pytest.mark.parametrize("name", FAST)
def test_an_attack_changes_nothing_for_the_others(bed: AttackBed, name: str) -> None:
    outcome = bed.play(ATTACKS[name], probes=1)  # how fast is what the campaign asks: others use this machine
    assert bed.is_alive, bed.job.output[-3000:]
    assert outcome.found == []
    assert check(bed) == []
