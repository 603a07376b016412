"""Which services a job has, and that they are started and ended with it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streaming_app.config.settings import JobConfig
from streaming_app.job.services import BackgroundServices, background_services, wanted_services
from streaming_app.tables.heartbeat_file import read_heartbeat
from tests.support.a_job import a_job
from tests.support.waiting import wait_until
from tests.support.warehouses import make_warehouse

OF_BROKERS = {"task copies", "broker facts", "descriptions"}
ALL = {"lag", *OF_BROKERS, "self-check"}


def config(warehouse: Path, **settings: Any) -> JobConfig:
    values = {"bootstrap_server": "127.0.0.1:1", "warehouse": warehouse}
    return JobConfig.model_validate({**values, **settings})


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, ALL),
        ({"once": True}, set()),
        ({"lag": {"enabled": False}}, ALL - {"lag"}),
        ({"task_copies": {"enabled": False}}, ALL - {"task copies"}),
        (
            {name: {"enabled": False} for name in ("self_check", "broker_facts", "descriptions")},
            ALL - {"self-check", "broker facts", "descriptions"},
        ),
        (
            {"topic": "copy-of-another-cluster"},
            ALL - {"self-check", "broker facts", "descriptions"},
        ),  # these brokers do not have its groups
    ],
    ids=["default", "once", "no lag", "no copies", "no self-check, facts and descriptions", "another topic"],
)
def test_a_job_has_the_services_that_it_asks_for_and_with_once_none_that_would_begin_when_it_ends(
    tmp_path: Path, settings: dict[str, Any], wanted: set[str]
) -> None:
    assert wanted_services(config(tmp_path, **settings)) == wanted


@contextmanager
def running(warehouse: Path, **settings: Any) -> Iterator[tuple[BackgroundServices, list[str]]]:
    """Run the services of a job whose brokers do not answer."""
    lines: list[str] = []
    with background_services(a_job(make_warehouse(warehouse), lines.append, settings)) as started:
        yield started, lines


def test_the_services_of_a_job_whose_brokers_are_away_run_and_end_with_it(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    def names() -> set[str]:
        return {one.name for one in set(threading.enumerate()) - before}

    with running(tmp_path / "w") as (_, lines):
        assert wait_until(lambda: read_heartbeat(tmp_path / "w", "default") is not None)
        assert names() >= {*ALL, "heartbeat", "alerts"}
    assert not names() & {*ALL, "heartbeat", "alerts"}
    heartbeat = read_heartbeat(tmp_path / "w", "default")
    assert heartbeat is not None
    assert heartbeat.stopped
    assert lines == []
