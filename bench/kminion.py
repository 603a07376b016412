"""From the start of a process until it knows all committed offsets: the job against kminion.

Both read the same `__consumer_offsets`, with many commits of groups whose topics do not exist. kminion reads everything
at each start. It has read all when its own count of records is complete; its `/ready` says so at the next of its steps
of 15 s. The job is done when both of its streams have caught up; its first start and a later one are measured.
"""

import os
import re
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from kafka.admin import ConfigResource, ConfigResourceType

from bench.bench_harness import Harness, is_caught_up, process
from bench.memory import proportional_by_process
from bench.offsets import write_commits
from bench.rounds import print_rounds
from streaming_app.sandbox.child_process import reserve_port
from tests.support.http_client import answers
from tests.support.waiting import wait_until

ROUNDS = 5
PACKAGE = "github.com/cloudhut/kminion/v2@v2.3.5"
TOPIC = "__consumer_offsets"
_SECONDS = 600.0
_READING, _KMINION = "kminion, reading", "kminion, ready"
_ADMIN = "__admin_client"  # with this client id a broker lets clients write to internal topics
_CONSUMED = re.compile(r"^kminion_exporter_offset_consumer_records_consumed_total (\S+)", re.MULTILINE)
_POLL_SECONDS = 0.5


class Start(NamedTuple):
    """The measurements of a process at the time when it knew all commits."""

    seconds: float
    reading: float  # seconds until all records were read; only kminion reports it
    megabytes: float


def run(harness: Harness, commits: int, keys: int) -> None:
    """Print the seconds of both for rounds in turns, the ratio, and the memory at the end."""
    program = _find_kminion(harness.directory)
    if isinstance(program, str):
        print(f"kminion: skipped, {program}", flush=True)
        return
    harness.client.commit_offsets("first", {("none", 0): 0})  # which makes the broker create the topic
    # Compaction would remove half of the records before the later rounds have read them.
    _configure(harness, {"min.compaction.lag.ms": str(86_400_000)})
    partitions = len(harness.client.end_offsets(TOPIC))
    write_commits(harness, TOPIC, commits, keys, partitions=partitions, client_id=_ADMIN)
    starts: dict[str, list[Start]] = {
        _KMINION: [],
        "the job, first start": [],
        "the job, started again": [],
    }
    for number in range(ROUNDS):
        for label, each in starts.items():
            if label == _KMINION:
                each.append(_start_kminion(harness, program))
            else:
                each.append(_start_job(harness, harness.directory / f"kminion-{number}"))
            print(f"round {number}, {label}: {each[-1].seconds:.1f} s", flush=True)
    seconds = {_READING: [one.reading for one in starts[_KMINION]]}
    seconds |= {label: [one.seconds for one in each] for label, each in starts.items()}
    print_rounds(f"{commits:,} commits of {keys:,} keys", seconds, commits)
    for label, each in starts.items():
        megabytes = statistics.median(one.megabytes for one in each)
        print(f"{label}: {megabytes:,.0f} MB (PSS, median)", flush=True)


def _find_kminion(directory: Path) -> Path | str:
    """Return the path of kminion: on the PATH, or built by Go; or a text that says why there is none."""
    if found := shutil.which("kminion"):
        return Path(found)
    if not shutil.which("go"):
        return "neither kminion nor go is on the PATH"
    built = subprocess.run(
        ["go", "install", PACKAGE],
        env={**os.environ, "GOBIN": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = built.stderr.strip().splitlines()
    return directory / "kminion" if built.returncode == 0 else f"go install {PACKAGE}: {lines[-1].strip()}"


def _configure(harness: Harness, configs: dict[str, str]) -> None:
    harness.client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs)])


def _start_kminion(harness: Harness, program: Path) -> Start:
    with reserve_port() as free:
        port = free.getsockname()[1]
    settings = {
        "KAFKA_BROKERS": harness.broker.bootstrap_server,
        "MINION_CONSUMERGROUPS_SCRAPEMODE": "offsetsTopic",
        "EXPORTER_HOST": "127.0.0.1",
        "EXPORTER_PORT": str(port),
    }
    url = f"http://127.0.0.1:{port}"
    records = sum(harness.client.end_offsets(TOPIC).values())
    started = time.monotonic()
    with process([str(program)], harness.directory / "kminion.log", settings) as pid:
        assert wait_until(lambda: answers(f"{url}/metrics"), _SECONDS)
        assert wait_until(lambda: _consumed(url) >= records, _SECONDS, interval=_POLL_SECONDS)
        reading = time.monotonic() - started
        assert wait_until(lambda: answers(f"{url}/ready"), _SECONDS)
        return Start(time.monotonic() - started, reading, _megabytes(pid))


def _start_job(harness: Harness, warehouse: Path) -> Start:
    log = harness.directory / "kminion-job.log"
    started = time.monotonic()
    with process(harness.run_command(warehouse), log) as pid:
        assert wait_until(lambda: is_caught_up(log), _SECONDS)
        return Start(time.monotonic() - started, 0.0, _megabytes(pid))


def _consumed(url: str) -> float:
    with urlopen(f"{url}/metrics", timeout=60) as response:  # noqa: S310 - http on loopback
        found = _CONSUMED.search(response.read().decode())
    return float(found.group(1)) if found else 0.0


def _megabytes(pid: int) -> float:
    return sum(proportional_by_process(pid).values()) / 1e6
