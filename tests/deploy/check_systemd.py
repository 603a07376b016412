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
    report: Callable[[str], None],
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
    report(f"the unit ran under {version}, and stopped in {seconds:.1f} s")


def test_of_two_units_one_works_and_the_other_takes_over_from_it(
    engine: Engine,
    volume: str,
    start_machine: Callable[..., str],
    start_broker: Callable[..., LocalBroker],
    tmp_path: Path,
    report: Callable[[str], None],
) -> None:
    broker = start_broker()
    names = ["replica-a", "replica-b"]
    mount = "--volume", f"{volume}:/var/lib/streams-groups"
    machines = [start_machine("--hostname", name, *mount) for name in names]
    listens = [_configure_unit(engine, machine, broker, tmp_path) for machine in machines]

    def is_ready(number: int) -> bool:
        return answers(f"http://{listens[number]}/ready")

    def journal(number: int) -> str:
        command = "journalctl", "--unit", "streams-groups", "--no-pager", "--output", "cat"
        return engine.run("exec", machines[number], *command)

    def systemctl(number: int, *command: str) -> str:
        return engine.run("exec", machines[number], "systemctl", *command)

    with live_group(broker.bootstrap_server, "payments"):
        systemctl(0, "start", "streams-groups")
        assert wait_until(lambda: is_ready(0), READY_SECONDS, interval=1)
        systemctl(1, "start", "streams-groups")
        waiting = "Waiting: cluster default is written by replica-a (pid "
        assert wait_until(lambda: waiting in journal(1), READY_SECONDS, interval=1), journal(1)
        assert not is_ready(1)

        killed = time.monotonic()
        systemctl(0, "kill", "--signal=KILL", "--kill-whom=all", "streams-groups")
        assert wait_until(lambda: is_ready(1), READY_SECONDS, interval=1), journal(1)
        taken_over = time.monotonic() - killed
        listed = engine.run("exec", machines[1], *LIST_GROUPS)
        assert first_two_columns(listed) == [["GROUP", "STATE"], ["payments", "Stable"]]

        # systemd has started the killed job again: it must not take the rows back while the other one works.
        waiting = "Waiting: cluster default is written by replica-b (pid "
        assert wait_until(lambda: waiting in journal(0), READY_SECONDS, interval=1), journal(0)
        assert "NRestarts=1" in systemctl(0, "show", "streams-groups", "--property=NRestarts")
        assert (is_ready(0), is_ready(1)) == (False, True)

        stopped = time.monotonic()
        systemctl(1, "stop", "streams-groups")
        assert wait_until(lambda: is_ready(0), READY_SECONDS, interval=1), journal(0)
        handed_over = time.monotonic() - stopped
    report(f"two units: taken over {taken_over:.0f} s after a kill, {handed_over:.0f} s after a stop (ready again)")
