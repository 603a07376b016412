"""The fastest attacks; `python -m tests.long.campaign --attacks` plays all of them."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.long.campaign.checks import check
from tests.long.hostile.attacks import ATTACKS, FAST
from tests.long.hostile.bed import AttackBed
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker
DISK_RULE = "StreamsGroupsDiskAlmostFull"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackBed]:
    """One job for all."""
    with AttackBed(tmp_path_factory.mktemp("bed"), probes=1 + len(FAST), megabytes=800) as one:
        yield one


def test_the_alert_about_a_disk_that_fills_leaves_before_it_is_full_and_stays_while_it_is(bed: AttackBed) -> None:
    if not bed.disk.directory.is_mount():
        pytest.skip("this process may not mount a file system")
    assert events(bed, DISK_RULE) == []
    bed.disk.fill(leave=40 << 20)
    assert wait_until(lambda: events(bed, DISK_RULE) == ["firing"]), bed.job.output[-3000:]
    bed.disk.fill()
    assert bed.disk.is_full
    time.sleep(10)  # noqa: TID251 - some evaluations, none of which can be seen: the disk is full
    assert events(bed, DISK_RULE) == ["firing"]
    bed.disk.free()
    if not bed.is_alive:
        bed.job.close()
        bed.start_job()
    assert wait_until(lambda: events(bed, DISK_RULE) == ["firing", "resolved"]), bed.job.output[-3000:]
    assert bed.probe().row is not None


@pytest.mark.parametrize("name", FAST)
def test_an_attack_changes_nothing_for_the_others(bed: AttackBed, name: str) -> None:
    outcome = bed.play(ATTACKS[name], probes=1)  # how fast is what the campaign asks: others use this machine
    assert bed.is_alive, bed.job.output[-3000:]
    assert outcome.found == []
    assert check(bed) == []


def events(bed: AttackBed, rule: str) -> list[str]:
    """Return what the webhook got about a rule."""
    bodies = [json.loads(one.body) for one in list(bed.receiver.requests) if rule.encode() in one.body]
    return [body["type"].rpartition(".")[2] for body in bodies if body["data"].get("rule") == rule]
