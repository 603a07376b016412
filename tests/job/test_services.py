"""Which services a job has, and that they are started and ended with it."""

import threading
from pathlib import Path
from typing import Any

import pytest

from streaming_app.job.services import background_services
from streaming_app.tables.heartbeat_file import read_heartbeat
from tests.support.a_job import a_job
from tests.support.waiting import wait_until
from tests.support.warehouses import make_warehouse

ALL = {"lag", "task copies", "broker facts", "descriptions"}


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, ALL),
        ({"once": True}, set()),
        ({"lag": {"enabled": False}}, ALL - {"lag"}),
        ({"task_copies": {"enabled": False}}, ALL - {"task copies"}),
        ({name: {"enabled": False} for name in ("broker_facts", "descriptions")}, {"lag", "task copies"}),
        ({"topic": "copy-of-another-cluster"}, {"lag", "task copies"}),  # these brokers do not have its groups
    ],
    ids=["default", "once", "no lag", "no copies", "no facts and descriptions", "another topic"],
)
def test_a_job_has_the_services_that_it_asks_for_and_with_once_none_that_would_begin_when_it_ends(
    tmp_path: Path, settings: dict[str, Any], wanted: set[str]
) -> None:
    """Its brokers do not answer; the services run all the same, and end with it."""
    before, lines = set(threading.enumerate()), list[str]()

    def names() -> set[str]:
        return {one.name for one in set(threading.enumerate()) - before} & {*ALL, "heartbeat", "alerts"}

    with background_services(a_job(make_warehouse(tmp_path / "w"), lines.append, settings)):
        assert names() == wanted | {"heartbeat", "alerts"}
        assert wait_until(lambda: read_heartbeat(tmp_path / "w", "default") is not None)
    assert not names()
    heartbeat = read_heartbeat(tmp_path / "w", "default")
    assert heartbeat is not None
    assert heartbeat.stopped
    assert lines == []
