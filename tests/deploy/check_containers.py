"""What needs a Docker engine, for `make check-deploy`: without one it is skipped.

deploy/Dockerfile is built and run as deploy/README.md says. The first build takes ten minutes, most of them downloads;
later ones use the layers in build/docker.
"""

import json
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from streaming_app.job.stopping import STOP_SECONDS
from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.child_process import reserve_port
from tests.deploy import docker_engine
from tests.deploy.docker_engine import ROOT, Engine
from tests.deploy.live_group import READY_SECONDS, first_two_columns, live_group
from tests.support.container import BROKER_VARIABLE, ContainerBroker
from tests.support.http_client import answers
from tests.support.waiting import wait_until

HEALTH = "http://127.0.0.1:9464/health"
# As in deploy/README.md, but on the network of this machine, where the broker listens on loopback.
OPTIONS = [
    *("--read-only", "--tmpfs", "/tmp:exec", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),  # noqa: S108
    *("--memory", "5g", "--stop-timeout", "20", "--network", "host"),
]
LARGEST_BYTES = 2_000_000_000
LARGEST_PSS_MIB = 1500
_PSS = """
import glob, re
total = 0
for file in glob.glob('/proc/[0-9]*/smaps_rollup'):
    try:
        total += int(re.search(r'^Pss:\\s+(\\d+)', open(file).read(), re.M)[1])
    except OSError:  # of a process that has exited
        pass
print(total // 1024)
"""
COMPOSE_FILE = ROOT / "deploy" / "compose.yaml"
COMPOSE_TEXT = COMPOSE_FILE.read_text("utf-8")
SERVICES = yaml.safe_load(COMPOSE_TEXT)["services"]
PROJECT = "streams-groups-check"
RULES_FILE = ROOT / "deploy" / "charts" / "streams-groups" / "files" / "streams-groups.rules.yml"
RULES = sum(len(group["rules"]) for group in yaml.safe_load(RULES_FILE.read_text("utf-8"))["groups"])
PROMETHEUS = "http://127.0.0.1:9090"
KAFKA = f"apache/kafka:{KAFKA_VERSION}"
SELECTION = ["tests/kafka/test_client.py"]


# --- The image


@pytest.fixture
def container(engine: Engine) -> Iterator[Callable[..., str]]:
    """Starts containers in the background: `container(*options_and_image)` returns the id. They are removed after."""
    started: list[str] = []

    def start(*options: str) -> str:
        started.append(engine.run("run", "--detach", *options))
        return started[-1]

    yield start
    for name in started:
        engine.try_run("rm", "--force", "--volumes", name)


def test_the_image_has_what_the_job_needs_and_no_root(engine: Engine, image: str) -> None:
    size = int(engine.run("image", "inspect", "-f", "{{.Size}}", image))
    base = docker_engine.dockerfile_bases()[0]
    base_size = int(engine.run("image", "inspect", "-f", "{{.Size}}", base))
    source = "made from Debian" if docker_engine.is_stand_in(engine, base) else "pulled"
    print(f"image: {size / 1e6:.0f} MB, {base_size / 1e6:.0f} MB of them {base} ({source})")
    assert size < LARGEST_BYTES
    assert engine.run("run", "--rm", image, "--version").startswith("streams-groups, version ")
    assert engine.run("run", "--rm", "--entrypoint", "id", image).startswith("uid=10001(streams-groups) gid=10001")


def test_the_image_serves_the_page(engine: Engine, image: str, container: Callable[..., str]) -> None:
    with reserve_port() as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    name = container(*OPTIONS, image, "web", "--listen", listen)
    assert wait_until(
        lambda: any(line.startswith(f"The page is at http://{listen}/") for line in _log(engine, name)),
        READY_SECONDS,
        interval=1,
    )
    assert answers(f"http://{listen}/")


def test_the_job_runs_without_root_and_with_a_read_only_file_system(
    engine: Engine,
    image: str,
    volume: str,
    container: Callable[..., str],
    start_broker: Callable[..., LocalBroker],
) -> None:
    broker = start_broker()
    mount = [
        "-v",
        f"{volume}:/var/lib/streams-groups",
        "-e",
        f"STREAMS_GROUPS_BOOTSTRAP_SERVER={broker.bootstrap_server}",
    ]

    with live_group(broker.bootstrap_server, "payments"):
        name = container(*OPTIONS, *mount, image)
        run = partial(engine.try_run, "exec", name, "streams-groups")
        assert wait_until(lambda: "payments" in run("list", "--state").stdout, READY_SECONDS, interval=1)
        assert answers(HEALTH)
        assert wait_until(
            lambda: engine.run("inspect", "-f", "{{.State.Health.Status}}", name) == "healthy",
            READY_SECONDS,
            interval=1,
        )
        checks = [line for line in _log(engine, name) if line.startswith(("ok ", "warning ", "failed "))]
        assert [line for line in checks if line.startswith("failed ")] == []
        assert {"Java", "memory", "jars", "topic", "warehouse"} <= {
            line.split(maxsplit=1)[1].partition(":")[0] for line in checks
        }
        groups = json.loads(run("sql", "--format", "json", "SELECT * FROM groups").stdout)
        assert [(one["group_id"], one["state"]) for one in groups] == [("payments", "Stable")]
        verified = run("verify", "--bootstrap-server", broker.bootstrap_server)
        assert verified.returncode == 0, verified.stdout + verified.stderr
    mapped = engine.try_run("exec", name, "sh", "-c", "grep -h '/opt/streams-groups/jars/.*[.]jsa' /proc/[0-9]*/maps")
    assert mapped.stdout, "Java does not use the archive of classes"
    changed = engine.run("diff", name).splitlines()
    assert not [line for line in changed if line.split()[1] not in {"/tmp", "/var", "/var/lib"}], changed  # noqa: S108
    pss = int(engine.run("exec", name, "python", "-c", _PSS))
    assert pss < LARGEST_PSS_MIB
    seconds = _stop(engine, name)
    print(f"image: the job uses {pss} MiB (PSS) with one group, and stops in {seconds:.1f} s")

    started = time.monotonic()
    again = container(*OPTIONS, *mount, "-e", "STREAMS_GROUPS_CHECK=no", image)
    assert wait_until(
        lambda: any("resuming from the checkpoint" in line for line in _log(engine, again)), READY_SECONDS, interval=1
    )
    print(f"image: {time.monotonic() - started:.1f} s from the start of the container until the stream runs again")
    assert not [line for line in _log(engine, again) if line.startswith("ok ")]
    _stop(engine, again)


def test_a_container_that_cannot_work_says_why(engine: Engine, image: str) -> None:
    server = ["-e", "STREAMS_GROUPS_BOOTSTRAP_SERVER=127.0.0.1:1"]
    for options, check in (
        (["--tmpfs", "/tmp"], "temporary files: /tmp is mounted with noexec"),  # Docker's default for it # noqa: S108
        (["--tmpfs", "/tmp:exec", "--user", "12345"], "user: user 12345 has no name"),  # noqa: S108
    ):
        result = engine.try_run("run", "--rm", "--read-only", *options, *server, image, "check")
        assert result.returncode == 1
        assert f"failed   {check}; " in result.stdout


def _log(engine: Engine, name: str) -> list[str]:
    command = [engine.client, "logs", name]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, text=True, check=True, env=engine.environment, **options).stdout.splitlines()


def _stop(engine: Engine, name: str) -> float:
    """Stop the container as `docker stop` does; return how long that took, in seconds."""
    began = time.monotonic()
    engine.run("stop", name)
    seconds = time.monotonic() - began
    assert engine.run("inspect", "-f", "{{.State.ExitCode}}", name) == "0", _log(engine, name)
    assert seconds < STOP_SECONDS + 10  # noqa: WAIT001 - a promise: an engine kills it then
    return seconds


# --- deploy/compose.yaml: all services, without Grafana where it cannot be pulled


@pytest.fixture
def compose(engine: Engine, image: str) -> Iterator[Callable[..., str]]:
    """`compose("ps")` runs a command of Docker Compose; all services that can be had run, and are removed after."""
    command = _command(engine)
    # Compose 1, which Debian has, does not know the key `name`.
    text = "".join(line for line in COMPOSE_TEXT.splitlines(keepends=True) if not line.startswith("name:"))
    options = ["--project-directory", str(COMPOSE_FILE.parent), "--project-name", PROJECT, "--file", "-"]

    def run(*arguments: str) -> str:
        result = subprocess.run(
            [*command, *options, *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_SECONDS,
            cwd=COMPOSE_FILE.parent,  # Compose 1 takes relative paths of a file on stdin from there
            env=engine.environment,
        )
        assert result.returncode == 0, result.stderr[-4000:]
        return result.stdout

    missing = {
        name: reason
        for name, service in SERVICES.items()
        if service["image"] != image and (reason := docker_engine.reason_without(engine, service["image"]))
    }
    for name, reason in missing.items():
        print(f"compose: {name} is left out: {reason}")
    if missing.keys() - {"grafana"}:
        pytest.skip("services are missing")
    available = [name for name in SERVICES if name not in missing]
    try:
        run("up", "--detach", "--no-build", *available)
        yield run
    finally:
        run("down", "--volumes", "--timeout", "20")


def _command(engine: Engine) -> list[str]:
    if engine.try_run("compose", "version").returncode == 0:
        return [engine.client, "compose"]
    standalone = shutil.which("docker-compose")
    if not standalone:
        pytest.skip("Docker Compose is not installed")
    return [standalone]


def test_the_services_work_together(compose: Callable[..., str]) -> None:
    began = time.monotonic()
    with live_group("localhost:9092", "payments"):
        assert wait_until(lambda: answers(f"{PROMETHEUS}/-/ready"), READY_SECONDS, interval=1)
        query = 'streams_group_state{group="payments",state="Stable"}'
        assert wait_until(lambda: _query(query) == ["1"], READY_SECONDS, interval=1)
        print(f"compose: a group is in Prometheus {time.monotonic() - began:.0f} s after it was created")
        assert _query('up{job="streams-groups"}') == ["1"]
        assert wait_until(lambda: {rule["health"] for rule in _rules()} == {"ok"}, READY_SECONDS, interval=1)
        assert len(_rules()) == RULES
        listed = compose("exec", "-T", "streams-groups", "streams-groups", "list", "--state")
        assert first_two_columns(listed) == [["GROUP", "STATE"], ["payments", "Stable"]]
    assert "__consumer_offsets-0" in compose("exec", "-T", "kafka", "ls", "/var/lib/kafka/data").split()
    assert "failed " not in compose("logs", "streams-groups")


def _get(path: str) -> Any:
    url = f"{PROMETHEUS}/api/v1/{path}"
    with urllib.request.urlopen(url, timeout=60) as response:  # noqa: S310 - http on loopback
        return json.load(response)["data"]


def _query(promql: str) -> list[str]:
    return [one["value"][1] for one in _get(f"query?query={urllib.parse.quote(promql)}")["result"]]


def _rules() -> list[dict[str, Any]]:
    return [rule for group in _get("rules")["groups"] for rule in group["rules"]]


# --- Tests with a broker in a container: STREAMS_GROUPS_BROKER=docker


@pytest.fixture
def variables(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What testcontainers needs: the engine has Kafka's image, and no image that ends containers after a crash."""
    try:
        docker_engine.provide(engine, KAFKA)
    except docker_engine.ImageUnavailableError as error:
        pytest.skip(str(error))
    changed = {BROKER_VARIABLE: "docker", "TESTCONTAINERS_RYUK_DISABLED": "true"}
    if engine.host:
        changed["DOCKER_HOST"] = engine.host
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    return engine.environment | changed


@pytest.mark.usefixtures("variables")
def test_a_broker_in_a_container_keeps_its_data_and_port_when_it_is_restarted(tmp_path: Path) -> None:
    # In a process of its own: docker-py leaves its sockets to the garbage collector.
    program = f"""
from pathlib import Path
from {StreamsGroupClient.__module__} import StreamsGroupClient
from {ContainerBroker.__module__} import ContainerBroker
with ContainerBroker(Path({str(tmp_path)!r}), properties={{"offsets.topic.num.partitions": "3"}}) as broker:
    before = broker.bootstrap_server
    with StreamsGroupClient(before) as client:
        client.create_topic("kept", 2)
    broker.restart()
    assert broker.bootstrap_server == before
    with StreamsGroupClient(before) as client:
        assert client.end_offsets("kept") == {{0: 0, 1: 0}}
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Kafka Server started" in (tmp_path / "broker.log").read_text("utf-8", "replace")


def test_tests_pass_with_a_broker_in_a_container(engine: Engine, variables: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SELECTION]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=variables)
    assert result.returncode == 0, result.stdout[-6000:]
    source = "made from the jars" if docker_engine.is_stand_in(engine, KAFKA) else "pulled"
    print(f"with a broker in a container ({KAFKA}, {source}): {result.stdout.splitlines()[-1]}")
