"""Programs that some tests check with, and that may be missing: on PATH, else out of Debian's package."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

from streaming_app.local.jars import cache_directory

_FETCH_SECONDS = 180


class MissingToolError(Exception):
    """The program is not to be had; the text says why."""


def debian_tool(package: str, binary: str) -> Path:
    """Find `binary` on PATH, else take it out of Debian's `package` into the cache, without installing that.

    Raises MissingToolError where neither works.
    """
    if found := shutil.which(binary):
        return Path(found)
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise MissingToolError(f"no {binary} on PATH, and no apt-get to fetch Debian's {package} with")
    kept = cache_directory() / "debian" / package
    program = kept / "usr" / "bin" / binary
    kept.mkdir(parents=True, exist_ok=True)
    with FileLock(kept / "fetch.lock"):
        if not program.exists():
            _fetch(package, kept)
    if not program.exists():
        raise MissingToolError(f"Debian's package {package} has no {binary}")
    return program


def _fetch(package: str, kept: Path) -> None:
    said = "nothing was said"
    for command in (["apt-get", "download", package], ["apt-get", "update"], ["apt-get", "download", package]):
        try:
            ran = subprocess.run(command, cwd=kept, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            said = f"{' '.join(command)} takes more than {_FETCH_SECONDS} s"
            break
        said = (ran.stderr.strip().splitlines() or [said])[-1]
        if fetched := next(iter(kept.glob("*.deb")), None):
            subprocess.run(["dpkg-deb", "-x", fetched, kept], check=True, capture_output=True)
            fetched.unlink()
            return
    raise MissingToolError(f"no program of {package} on PATH, and apt-get does not fetch its package: {said}")
