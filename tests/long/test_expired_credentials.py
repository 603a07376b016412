"""Credentials for S3 that expire while a job runs: it ends with one line, which says where they come from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from tests.support import stores
from tests.support.container import Broker
from tests.support.running_job import running_job
from tests.support.s3_server import s3_server
from tests.support.waiting import MINUTES, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(4 * MINUTES)]
HINT = "credentials come from environment variables, see deploy/README.md"


def test_the_job_tries_again_and_ends_with_the_hint(
    broker: Broker,
    client: StreamsGroupClient,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, group = unique("in"), unique("g")
    client.create_topic(source, 1)
    SimulatedMember(client, group, topology(subtopology("0", source_topics=[source]))).join()
    with s3_server(tmp_path) as store:
        for name, value in {**store.environment, "STREAMS_GROUPS_STATE_DIR": str(tmp_path / "state")}.items():
            monkeypatch.setenv(name, value)
        settings = stores.s3a_settings(store.environment["AWS_ENDPOINT_URL"])
        conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        with running_job(broker.bootstrap_server, store.uri("wh"), "--trigger", "2s", *conf) as job:
            assert job.says("Caught up"), job.lines
            told = len(job.lines)
            with store.denying_expired_credentials():
                assert wait_until(lambda: job.process.poll() is not None, 2 * MINUTES), job.lines
            code, errors = job.end()
    said = [line for line in job.lines[told:] if "Cannot read s3a://bucket/wh:" in line]
    assert (code, errors.count("\n")) == (1, 1), (job.lines, errors)
    assert errors.startswith("Error: ")
    assert all(HINT in line for line in (errors, *said)), (said, errors)
    assert any(line.endswith("Trying again.\n") for line in said), job.lines  # not at the first error
    assert not any("Traceback" in line for line in job.lines)
