from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from streaming_app.core.facts import COLUMNS, GroupFacts, group_facts
from streaming_app.job.errors import JobError
from streaming_app.job.files import _Local
from streaming_app.job.health import Health
from streaming_app.job.run import JobConfig
from streaming_app.job.sign import SignOfLife
from streaming_app.serve.running import Running, read_running

AT = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)


class Full(_Local):
    def write(self, *_: Any) -> None:
        raise OSError(28, "No space left on device")


def sign(warehouse: Path, files: Any = None, *, has_plugin: bool = False, descriptions: str = "auto") -> SignOfLife:
    told = {"bootstrap_server": "h:1", "warehouse": warehouse, "alerts": {"descriptions": descriptions}}
    return SignOfLife(JobConfig.model_validate(told), files or _Local(), Health(), has_plugin=has_plugin)


def stored(group_id: str) -> GroupFacts:
    told = {"group_id": group_id, "state": "Stable", "stored_description_epoch": 0, "description_since": AT}
    return group_facts(dict.fromkeys(COLUMNS) | {"failed_description_epoch": -1, "unsolicited_pushes": 0} | told)


def left(warehouse: Path) -> Running:
    running = read_running(warehouse, "default")
    assert running is not None
    return running


def test_a_job_is_alive_from_its_sign_until_it_signs_off(tmp_path: Path) -> None:
    one = sign(tmp_path)
    one.renew([])
    assert left(tmp_path).alive(datetime.now(timezone.utc))
    one.sign_off([])
    assert not left(tmp_path).alive(datetime.now(timezone.utc))


def test_that_a_cluster_keeps_descriptions_is_known_after_the_group_that_showed_it_is_gone(tmp_path: Path) -> None:
    one = sign(tmp_path)
    assert one.descriptions_since({}, AT) is None
    assert one.descriptions_since({"g": stored("g")}, AT) == AT
    assert one.descriptions_since({}, AT) == AT
    one.sign_off([])
    assert sign(tmp_path).descriptions_since({}, AT) == AT


def test_a_plugin_is_known_since_a_job_first_saw_it_in_the_brokers_config(tmp_path: Path) -> None:
    one = sign(tmp_path, has_plugin=True)
    since = one.descriptions_since({}, AT)
    assert since is not None
    one.sign_off([])
    assert sign(tmp_path, has_plugin=True).descriptions_since({}, AT) == since


def test_what_the_settings_say_of_descriptions_is_not_remembered(tmp_path: Path) -> None:
    one = sign(tmp_path, descriptions="always")
    assert one.descriptions_since({}, AT) is not None
    one.sign_off([])
    assert sign(tmp_path).descriptions_since({}, AT) is None
    assert sign(tmp_path, has_plugin=True, descriptions="never").descriptions_since({}, AT) is None


def test_a_full_disk_is_told_while_the_job_runs_and_not_when_it_ends(tmp_path: Path) -> None:
    one = sign(tmp_path, Full())
    with pytest.raises((OSError, JobError)):
        one.renew([])
    one.sign_off([])
