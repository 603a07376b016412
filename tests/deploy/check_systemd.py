"""The unit of deploy/systemd, run by a real systemd in a container, for `make check-deploy`."""

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.child_process import reserve_port
from tests.deploy.docker_engine import IMAGES, ROOT, Engine
from tests.deploy.live_group import READY_SECONDS, first_two_columns, live_group
from tests.support.http_client import answers
from tests.support.waiting import wait_until

BOOT_SECONDS = 60
UNIT_STOP_SECONDS = 20  # TimeoutStopSec= of the unit
LIST_GROUPS = "/opt/streams-groups/bin/streams-groups", "list", "--state", "--warehouse", "/var/lib/streams-groups"
# systemd needs the tree of control groups, and mounts for the unit; the network is that of the local broker.
MACHINE_OPTIONS = [
    *("--cgroupns", "host", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw", "--cap-add", "SYS_ADMIN"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--network", "host"),
    *("--tmpfs", "/run", "--tmpfs", "/run/lock", "--tmpfs", "/tmp:exec"),  # noqa: S108
]


@pytest.fixture
def start_machine(engine: Engine, image: str, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts containers in which systemd is the first process: `start_machine(*options)` returns the id."""
    context = tmp_path / "context"
    shutil.copytree(ROOT / "deploy" / "systemd", context)
    shutil.copy(IMAGES / "systemd.Dockerfile", context)
    engine.run("tag", image, "stand-in/streams-groups")
    engine.build("stand-in/systemd", context / "systemd.Dockerfile", context)
    started: list[str] = []

    def start(*options: str) -> str:
        name = engine.run("run", "--detach", *MACHINE_OPTIONS, *options, "stand-in/systemd")
        started.append(name)

        def state() -> str:
            """Return `running`, another word of systemd, or what Docker says about a container that has ended."""
            result = engine.try_run("exec", name, "systemctl", "is-system-running")
            return (result.stdout or result.stderr).strip()

        wait_until(lambda: state() == "running" or "is not running" in state(), BOOT_SECONDS, interval=1)
        if (last := state()) != "running":
            pytest.skip(f"systemd does not run in a container here: {last}")
        return name

    yield start
    for name in started:
        engine.run("rm", "--force", "--volumes", name)


def _configure_unit(engine: Engine, machine: str, broker: LocalBroker, directory: Path) -> str:
    """Install the configuration of the unit; return the address of its metrics."""
    with reserve_port() as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    config = directory / "config.yaml"
    config.write_text(yaml.safe_dump({"bootstrap_server": broker.bootstrap_server, "metrics": {"listen": listen}}))
    engine.run("cp", config, f"{machine}:/etc/streams-groups/config.yaml")
    engine.run("exec", machine, "systemd-sysusers")
    engine.run("exec", machine, "chown", "root:streams-groups", "/etc/streams-groups/config.yaml")
    return listen


def test_systemd_starts_and_stops_the_job(
    engine: Engine,
    start_machine: Callable[..., str],
    start_broker: Callable[..., LocalBroker],
    tmp_path: Path,
) -> None:
    broker = start_broker()
    machine = start_machine()
    listen = _configure_unit(engine, machine, broker, tmp_path)
    inside = partial(engine.run, "exec", machine)
    with live_group(broker.bootstrap_server, "payments"):
        inside("systemctl", "start", "streams-groups")
        assert wait_until(lambda: answers(f"http://{listen}/ready"), READY_SECONDS, interval=1)
        assert first_two_columns(inside(*LIST_GROUPS)) == [["GROUP", "STATE"], ["payments", "Stable"]]
    assert inside("stat", "-c", "%U", "/var/lib/streams-groups/groups/_delta_log").split() == ["streams-groups"]
    began = time.monotonic()
    inside("systemctl", "stop", "streams-groups")
    seconds = time.monotonic() - began
    assert seconds < UNIT_STOP_SECONDS  # noqa: WAIT001 - a promise: systemd kills it then
    shown = inside("systemctl", "show", "streams-groups", "--property=Result,ExecMainStatus,NRestarts")
    assert sorted(shown.splitlines()) == ["ExecMainStatus=0", "NRestarts=0", "Result=success"]
    version = inside("systemctl", "--version").splitlines()[0]
    print(f"the unit ran under {version}, and stopped in {seconds:.1f} s")
