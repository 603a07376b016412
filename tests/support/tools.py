"""External programs that some tests need, on the PATH or from a package; without the program a test is skipped."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

from streaming_app.jvm.java import cache_directory

_FETCH_SECONDS = 180
_BUILT = Path(__file__).parents[2] / "build" / "deploy-tools"
_DEPLOY_TOOLS = (_BUILT / "bin", _BUILT / "node_modules" / ".bin")


def deploy_tool(name: str) -> str:
    """Return the path of a program that is on the PATH or that `make check-deploy` installs."""
    if found := shutil.which(name, path=os.pathsep.join([*map(str, _DEPLOY_TOOLS), os.environ["PATH"]])):
        return found
    pytest.skip(f"{name} is not installed: make check-deploy installs it")


def debian_tool(package: str, binary: str) -> Path:
    """Return the path of `binary`: on the PATH, else extracted from Debian's `package` into the cache."""
    if found := shutil.which(binary):
        return Path(found)
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip(f"no {binary} on PATH, and no apt-get to download Debian's {package}")
    directory = cache_directory() / "debian" / package
    program = directory / "usr" / "bin" / binary
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / "fetch.lock"):
        if not program.exists():
            _fetch(package, directory)
    if not program.exists():
        pytest.skip(f"Debian's package {package} has no {binary}")
    return program


def _fetch(package: str, directory: Path) -> None:
    error = "no error message"
    for command in (["apt-get", "download", package], ["apt-get", "update"], ["apt-get", "download", package]):
        try:
            ran = subprocess.run(
                command, cwd=directory, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            error = f"{' '.join(command)} takes more than {_FETCH_SECONDS} s"
            break
        error = (ran.stderr.strip().splitlines() or [error])[-1]
        if fetched := next(iter(directory.glob("*.deb")), None):
            subprocess.run(["dpkg-deb", "-x", fetched, directory], check=True, capture_output=True)
            fetched.unlink()
            return
    pytest.skip(f"no program of {package} on PATH, and apt-get does not download it: {error}")
