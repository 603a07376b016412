"""What the job refuses, in one line, and what it takes in its stride."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from kafka import KafkaProducer

from streaming_app.job.lock import only_job
from streaming_app.local.answering import reserve
from streaming_app.local.container import Broker
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.member import Member, settle
from streaming_app.protocol.topology import subtopology, topology
from streaming_app.serve.warehouse import Warehouse, quoted
from tests.job.running import RUN_SECONDS, STREAMS_GROUPS, refusal, run_job, streams_groups

NOWHERE = "127.0.0.1:1"
ODD_IDS = (
    "two  spaces",
    'it\'s "quoted"',
    "back\\slash",
    "emoji 🎉",
    "line\nbreak",
    "per%cent",
    "-dash",
    "comma,dot.",
    "ümlaut",
)


def test_a_warehouse_that_cannot_be_written_is_told_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = run_job(NOWHERE, tmp_path / "file" / "warehouse")
    assert "Cannot write the warehouse: Not a directory" in refusal(ran)
    assert "Starting Spark" not in ran.stdout


@pytest.mark.parametrize(
    ("made_with", "told"), [({}, "no streams-groups job"), ({"streams_groups.format": "9"}, "format 9")]
)
def test_a_warehouse_made_by_something_else_is_left_alone(tmp_path: Path, made_with: dict[str, str], told: str) -> None:
    rows = pa.table({"x": [1]})
    write_deltalake(tmp_path / "groups", rows)
    DeltaTable(tmp_path / "groups").alter.set_table_properties(made_with, raise_if_not_exists=False)
    assert told in refusal(run_job(NOWHERE, tmp_path))


def test_a_second_job_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    with only_job(tmp_path / "_jobs", "default"):
        said = refusal(run_job(NOWHERE, tmp_path))
    assert f"process {os.getpid()} on" in said


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--bootstrap-server", "localhost"], "--bootstrap-server: must be HOST:PORT"),
        (["--bootstrap-server", NOWHERE, "--trigger", "-1"], "--trigger"),
        (["--bootstrap-server", NOWHERE, "--cluster", "a/b"], "--cluster: must be letters"),
        (["--bootstrap-server", NOWHERE, "--conf", "novalue"], "--conf takes KEY=VALUE"),
        (["--bootstrap-server", NOWHERE, "--dialect", "kip-1"], "--dialect: must be one of"),
        (["--bootstrap-server", NOWHERE, "--nonsense"], "--nonsense"),
        ([], "--bootstrap-server"),
    ],
)
def test_wrong_usage_names_the_option_and_exits_2(options: list[str], told: str, tmp_path: Path) -> None:
    ran = streams_groups("run", "--warehouse", tmp_path, *options)
    assert ran.returncode == 2
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_command_config_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "nowhere.properties" in refusal(
        run_job(NOWHERE, tmp_path, "--command-config", tmp_path / "nowhere.properties")
    )


def test_a_broker_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with reserve() as closed:
        said = refusal(run_job(f"127.0.0.1:{closed.getsockname()[1]}", tmp_path))
    assert "No Kafka broker answers at 127.0.0.1" in said


@pytest.mark.broker
def test_an_empty_topic_and_a_topic_of_something_else_do_no_harm(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("else")
    client.create_topic(topic, 2)
    empty = run_job(broker.bootstrap_server, Path(tmp_path.name), "--topic", topic, cwd=tmp_path.parent)
    assert (empty.returncode, empty.stderr) == (0, "")
    assert "Done: everything there was is processed." in empty.stdout
    assert Warehouse(tmp_path).rows("SELECT * FROM groups") == []

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server)
    for number in range(3):
        producer.send(topic, key=f"order-{number}".encode(), value=b'{"json": true}').get(30)
    producer.close()
    other = run_job(broker.bootstrap_server, tmp_path.as_uri(), "--topic", topic)
    assert other.returncode == 0, other.stderr
    assert "resuming" in other.stdout
    assert "3 quarantined" in other.stdout
    kept = Warehouse(tmp_path).rows("SELECT key, error_kind FROM quarantine ORDER BY key")
    assert kept == [{"key": f"order-{n}".encode(), "error_kind": "UnknownRecordType"} for n in range(3)]


@pytest.mark.broker
def test_a_running_job_is_the_only_one_takes_any_group_id_and_ends_by_sigterm(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    source = unique("in")
    client.create_topic(source, 1)
    command = [*STREAMS_GROUPS, "run", "--bootstrap-server", broker.bootstrap_server, "--warehouse", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        giving_up = threading.Timer(RUN_SECONDS, job.kill)
        giving_up.start()
        assert job.stdout is not None
        said = iter(job.stdout.readline, "")
        assert any("reading from the beginning" in line for line in said)
        assert f"process {job.pid} on" in refusal(run_job(broker.bootstrap_server, tmp_path))
        members = [Member(client, group, topology(subtopology("0", source_topics=[source]))) for group in ODD_IDS]
        for member in members:
            member.join()
        settle(members)
        asked = (
            "SELECT count(*) AS n FROM groups WHERE state = 'Stable' AND group_id IN ("
            + ", ".join(map(quoted, ODD_IDS))
            + ")"
        )
        assert any("batch" in line and Warehouse(tmp_path).rows(asked) == [{"n": len(ODD_IDS)}] for line in said), (
            "the job ended before all groups were Stable"
        )
        job.send_signal(signal.SIGTERM)
        rest = job.communicate(timeout=RUN_SECONDS)
        giving_up.cancel()
    assert (job.returncode, rest[1]) == (0, "")
    assert rest[0].endswith("Stopped.\n")

    listed = streams_groups("list", "--warehouse", tmp_path).stdout
    for group in ODD_IDS:
        told = streams_groups("describe", "--group", group, "--state", "--warehouse", tmp_path)
        assert told.returncode == 0, told.stderr
        assert " Stable " in told.stdout.splitlines()[1]
        assert group.replace("\n", "\\n") in listed
