"""The fastest attacks; `python -m tests.long.campaign --attacks` plays all of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.long.campaign.checks import check
from tests.long.hostile.attacks import ATTACKS, FAST
from tests.long.hostile.bed import STUCK_RULE, AttackBed
from tests.long.hostile.requests import write_internal
from tests.support.encoded import group_records, metadata_record
from tests.support.job_runner import streams_groups
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker
STEPS = 400
DISK_RULE = "StreamsGroupsDiskAlmostFull"
ALERTS = {"alerts": {"rules": {STUCK_RULE: {"not_ready_after": "2s"}, DISK_RULE: {"free_mib": 60, "for": "1s"}}}}
BUDGET = {"group_budget": {"steps": STEPS}}


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackBed]:
    """One job for all, whose groups may take few steps."""
    settings = {**ALERTS, **BUDGET}
    with AttackBed(tmp_path_factory.mktemp("bed"), probes=3 + len(FAST), settings=settings, megabytes=320) as one:
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
        bed.restart_job(**ALERTS, **BUDGET)
    assert wait_until(lambda: events(bed, DISK_RULE) == ["firing", "resolved"]), bed.job.output[-3000:]
    assert bed.probe().row is not None


@pytest.mark.parametrize("name", FAST)
def test_an_attack_changes_nothing_for_the_others(bed: AttackBed, name: str) -> None:
    outcome = bed.play(ATTACKS[name], probes=1)  # how fast is what the campaign asks: others use this machine
    assert bed.is_alive, bed.job.output[-3000:]
    assert outcome.found == []
    assert check(bed) == []


def test_a_group_that_takes_too_many_steps_is_set_aside_alone_until_it_is_released(bed: AttackBed) -> None:
    epochs = (metadata_record({"group_id": "busy"}, epoch) for epoch in range(3, 3 + 2 * STEPS))
    write_internal(bed.server, [*group_records("busy", 2), *epochs])
    assert wait_until(lambda: reason(bed) is not None), bed.job.output[-3000:]
    assert f"more than {STEPS} steps" in str(reason(bed))
    assert bed.probe().row is not None
    assert "busy" in set_aside(bed)
    assert wait_until(lambda: any(b"StreamsGroupSetAside" in one.body for one in list(bed.receiver.requests)))

    bed.restart_job(**ALERTS)  # without that budget
    released = streams_groups("status", "--release", "busy", "--warehouse", bed.warehouse)
    assert released.returncode == 0, released
    assert wait_until(lambda: "reading the records of 1 group again (busy); the history stays" in bed.job.output)
    tried = [{"group_epoch": 2 + 2 * STEPS, "set_aside_reason": None}]
    query = "SELECT group_epoch, set_aside_reason FROM groups WHERE group_id = 'busy'"
    assert wait_until(lambda: bed.rows(query) == tried)
    assert set_aside(bed) == []


def reason(bed: AttackBed) -> object:
    """Return why the group is set aside; None if it is not."""
    rows = bed.rows("SELECT set_aside_reason FROM groups WHERE group_id = 'busy'")
    return rows[0]["set_aside_reason"] if rows else None


def set_aside(bed: AttackBed) -> list[str]:
    shown = json.loads(streams_groups("status", "--json", "--warehouse", bed.warehouse).stdout)
    return [row["group"] for row in shown["set_aside"]]


def events(bed: AttackBed, rule: str) -> list[str]:
    """Return what the webhook got about a rule."""
    bodies = [json.loads(one.body) for one in list(bed.receiver.requests) if rule.encode() in one.body]
    return [body["type"].rpartition(".")[2] for body in bodies if body["data"].get("rule") == rule]
