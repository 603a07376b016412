"""A Docker engine for `make check-deploy`: the one of this machine, or Debian's, started by the checks themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DATA = ROOT / "build" / "docker"  # kept between runs, like the layers of any engine; `make clean` removes it
_START_SECONDS = 30
_STOP_SECONDS = 20
_BUILD_SECONDS = 1800


class EngineUnavailableError(Exception):
    """There is no engine here, and none can be started; the text says what is missing."""


class Engine(NamedTuple):
    """The client of a running engine."""

    client: str
    host: str | None
    """Its socket; None for the client's default."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables for `docker` and for testcontainers."""
        host = {"DOCKER_HOST": self.host} if self.host else {}
        return {**os.environ, "DOCKER_BUILDKIT": "1", **host}

    def try_run(self, *arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run `docker ARGUMENTS`, whatever its exit code."""
        command = [self.client, *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout, env=self.environment
        )

    def run(self, *arguments: object, timeout: float = 120) -> str:
        """Run `docker ARGUMENTS` and return what it prints. Raises AssertionError with its errors."""
        result = self.try_run(*arguments, timeout=timeout)
        assert result.returncode == 0, f"docker {' '.join(map(str, arguments))}: {result.stderr[-4000:]}"
        return result.stdout.strip()

    def build(self, image: str, dockerfile: Path, context: Path, *options: str) -> None:
        """Build an image. Package indexes are reached as from this machine: through its network."""
        self.run("build", "--network", "host", "-t", image, "-f", dockerfile, *options, context, timeout=_BUILD_SECONDS)

    def has(self, image: str) -> bool:
        return self.try_run("image", "inspect", image).returncode == 0


@contextmanager
def docker_engine() -> Iterator[Engine]:
    """Return this machine's engine; as root where none runs, start one from the `dockerd` on PATH, and end it after.

    Raises EngineUnavailableError.
    """
    client = _find_client()
    running = Engine(client, os.environ.get("DOCKER_HOST"))
    if running.try_run("info").returncode == 0:
        yield running
        return
    daemon = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not daemon or os.geteuid() != 0:
        raise EngineUnavailableError("no Docker engine answers, and none can be started: that takes root and dockerd")
    with TemporaryDirectory(prefix="dockerd-") as directory:
        host = f"unix://{directory}/docker.sock"
        options = ["--data-root", DATA, "--exec-root", f"{directory}/exec", "--pidfile", f"{directory}/pid"]
        with Path(directory, "log").open("wb") as log:
            process = subprocess.Popen([daemon, "--host", host, *options], stdout=log, stderr=subprocess.STDOUT)
        try:
            yield _wait(Engine(client, host), process, Path(directory, "log"))
        finally:
            process.terminate()
            process.wait(_STOP_SECONDS)  # noqa: WAIT002 - killed after it
            _unmount(Path(directory))


def _unmount(directory: Path) -> None:
    # The namespace of `--network host` stays mounted when the daemon ends; the directory could not be removed.
    mounts = (line.split()[1] for line in Path("/proc/self/mounts").read_text("utf-8").splitlines())
    for mount in sorted((one for one in mounts if Path(one).is_relative_to(directory)), reverse=True):
        subprocess.run(["umount", mount], check=True)


def _find_client() -> str:
    # Debian's client first: it builds with BuildKit without a plugin.
    client = shutil.which("docker", path=f"/usr/bin:{os.environ['PATH']}")
    if not client:
        raise EngineUnavailableError("docker is not installed")
    return client


def _wait(engine: Engine, process: subprocess.Popen[bytes], log: Path) -> Engine:
    end = time.monotonic() + _START_SECONDS
    while engine.try_run("info").returncode != 0:
        if process.poll() is not None or time.monotonic() > end:
            lines = log.read_text("utf-8", "replace").splitlines()
            raise EngineUnavailableError(f"dockerd does not start: {lines[-1] if lines else 'it printed nothing'}")
        time.sleep(0.2)  # noqa: TID251 - the engine of a CI machine, which tells nothing when it is up
    return engine
