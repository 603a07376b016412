"""The heartbeats by which something else notices that the job is gone."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

from streaming_app.job.watchdog import watchdog
from streaming_app.job_status import JobStatus
from tests.support.a_job import a_job
from tests.support.receivers import HttpReceiver, Response, make_sink

AT = datetime(2026, 11, 24, 8, tzinfo=timezone.utc)


def test_heartbeats_come_while_alerts_are_evaluated_and_one_that_is_missing_or_refused_is_told_once(
    tmp_path: Path,
) -> None:
    lines = list[str]()
    with HttpReceiver() as receiver:
        sink = make_sink(type="watchdog", url=f"{receiver.url}/ping/5e")
        job = SimpleNamespace(now=AT, status=JobStatus(AT, caught_up=True))
        settings = {"cluster": "prod", "alerts": {"interval": "40s"}}
        service = watchdog(a_job(tmp_path, lines.append, settings, health=job, now=lambda: job.now), sink)
        assert (service.tick_if_due(), receiver.requests) == (service.poll_seconds, [])  # nothing has been evaluated
        job.status = replace(job.status, evaluated_at=job.now)
        for _ in range(3):
            assert service.tick_if_due() == 60
            job.now += timedelta(seconds=60)
        assert [(one.path, one.body) for one in receiver.requests] == [("/ping/5e", b"prod: caught up\n")] * 3
        assert lines == []
        for _ in range(3):  # the thread of the alerts hangs
            service.tick_if_due()
        assert len(receiver.requests) == 3
        assert lines == ["watchdog watchdog: no heartbeat is sent: alerts were last evaluated 180 s ago"]
        job.status = replace(job.status, evaluated_at=job.now)
        service.tick_if_due()
        assert len(receiver.requests) == 4
        receiver.default = Response(404)
        for _ in range(2):
            service.tick_if_due()
        assert lines[1:] == [f"watchdog watchdog: {receiver.url} responded with status 404: check the URL"]  # no path
