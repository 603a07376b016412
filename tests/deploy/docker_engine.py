"""A Docker engine for `make check-deploy`: the one of this machine, or Debian's, started by the checks themselves.

It has the images that deploy/ names and does not build: pulled, or where no registry can be reached, made from Debian.
Those have the same names, files and options as far as deploy/ uses them; `deploy/README.md` says which checks ran with
them.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from streaming_app.jvm.jars import find_jars, kafka_jars

ROOT = Path(__file__).parents[2]
DATA = ROOT / "build" / "docker"  # kept between runs, like the layers of any engine; `make clean` removes it
_START_SECONDS = 30
_STOP_SECONDS = 20
_BUILD_SECONDS = 1800
IMAGES = Path(__file__).with_name("images")
STAND_IN_LABEL = "streams-groups.stand-in"
STAND_INS = {
    "python": "python",
    "eclipse-temurin": "java",
    "apache/kafka": "kafka",
    "prom/prometheus": "prometheus",
}
"""The name of a file in images/, by repository. Grafana is not in Debian."""

_NO_CACHE = """\
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Binary::apt::APT::Keep-Downloaded-Packages "false";
"""
_MIRROR = "http://deb.debian.org/debian"
_PULL_SECONDS = 600


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
    client = shutil.which("docker", path=f"/usr/bin:{os.environ['PATH']}")  # Debian's builds with BuildKit, no plugin
    if not client:
        raise EngineUnavailableError("docker is not installed")
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


def _wait(engine: Engine, process: subprocess.Popen[bytes], log: Path) -> Engine:
    end = time.monotonic() + _START_SECONDS
    while engine.try_run("info").returncode != 0:
        if process.poll() is not None or time.monotonic() > end:
            lines = log.read_text("utf-8", "replace").splitlines()
            raise EngineUnavailableError(f"dockerd does not start: {lines[-1] if lines else 'it printed nothing'}")
        time.sleep(0.2)  # noqa: TID251 - the engine of a CI machine, which tells nothing when it is up
    return engine


# --- Images


class ImageUnavailableError(Exception):
    """The image can neither be pulled nor made here; the text says why."""


def dockerfile_bases() -> list[str]:
    """Return the base images of deploy/Dockerfile; that of the result is the first."""
    text = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    return re.findall(r"^ARG \w+_IMAGE=(\S+)$", text, re.MULTILINE)


def provide(engine: Engine, image: str) -> None:
    """Make sure that the engine has this image: its own, a pulled one, or one from Debian.

    Raises ImageUnavailableError.
    """
    if engine.has(image) or _try_pull(engine, image):
        return
    stand_in = STAND_INS.get(image.partition(":")[0])
    if stand_in is None:
        raise ImageUnavailableError(f"{image} cannot be pulled, and Debian has no package in its place")
    _make(engine, stand_in)
    engine.run("tag", f"stand-in/{stand_in}", image)


def reason_without(engine: Engine, image: str) -> str | None:
    """Do what `provide` does; return why there is no such image, None if there is."""
    try:
        provide(engine, image)
    except ImageUnavailableError as error:
        return str(error)
    return None


def is_stand_in(engine: Engine, image: str) -> bool:
    return bool(engine.run("image", "inspect", "-f", f'{{{{index .Config.Labels "{STAND_IN_LABEL}"}}}}', image))


def _try_pull(engine: Engine, image: str) -> bool:
    try:
        return engine.try_run("pull", "--quiet", image, timeout=_PULL_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _make(engine: Engine, name: str) -> None:
    if engine.has(f"stand-in/{name}"):
        return
    _make_debian(engine)
    if name == "kafka":
        _make(engine, "java")
    with TemporaryDirectory() as directory:
        context = Path(directory)
        shutil.copytree(IMAGES, context, dirs_exist_ok=True)
        if name == "kafka":
            (context / "jars").mkdir()
            for jar in find_jars(kafka_jars()):
                shutil.copy(jar, context / "jars")
        engine.build(f"stand-in/{name}", context / f"{name}.Dockerfile", context, "--label", f"{STAND_IN_LABEL}={name}")


def _make_debian(engine: Engine) -> None:
    """Import Debian, with the certificates that this machine trusts: its package indexes may need them."""
    image = "stand-in/debian:bookworm"
    if engine.has(image):
        return
    debootstrap = shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin")
    if not debootstrap or os.geteuid() != 0:
        raise ImageUnavailableError("no registry can be reached; to make images from Debian takes root and debootstrap")
    with TemporaryDirectory() as directory:
        root, archive = Path(directory, "root"), Path(directory, "root.tar")
        options = ["--variant=minbase", "--include=ca-certificates"]
        made = subprocess.run(
            [debootstrap, *options, "bookworm", root, _MIRROR], capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            raise ImageUnavailableError(f"debootstrap: {(made.stdout + made.stderr).strip().splitlines()[-1]}")
        bundle, java = Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/ssl/certs/java/cacerts")
        if bundle.is_file():
            shutil.copy(bundle, root / "etc/ssl/certs/ca-certificates.crt")
        if java.is_file():
            (root / "opt/certificates").mkdir(parents=True)
            shutil.copy(java, root / "opt/certificates/cacerts")
        for cached in root.glob("var/cache/apt/archives/*.deb"):
            cached.unlink()
        # As in Docker's image of Debian: what apt caches is in no layer.
        (root / "etc/apt/apt.conf.d/docker-clean").write_text(_NO_CACHE, "utf-8")
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        variables = f"ENV PIP_CERT={bundle} REQUESTS_CA_BUNDLE={bundle}"  # for pip, and for the download of jars
        engine.run("import", "--change", variables, archive, image, timeout=300)
