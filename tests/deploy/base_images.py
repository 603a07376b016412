"""The images that deploy/ names and does not build: pulled, or where no registry can be reached, made from Debian.

Those from Debian have the same names, files and options as far as deploy/ uses them; `deploy/README.md` says which
checks ran with them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from streaming_app.jvm.jars import find_jars, kafka_jars
from tests.deploy.docker_engine import ROOT, Engine

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
        _copy_certificates(root)
        for cached in root.glob("var/cache/apt/archives/*.deb"):
            cached.unlink()
        # As in Docker's image of Debian: what apt caches is in no layer.
        (root / "etc/apt/apt.conf.d/docker-clean").write_text(_NO_CACHE, "utf-8")
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        bundle = "/etc/ssl/certs/ca-certificates.crt"
        engine.run("import", "--change", f"ENV PIP_CERT={bundle}", archive, image, timeout=300)


def _copy_certificates(root: Path) -> None:
    bundle, java = Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/ssl/certs/java/cacerts")
    if bundle.is_file():
        shutil.copy(bundle, root / "etc/ssl/certs/ca-certificates.crt")
    if java.is_file():
        (root / "opt/certificates").mkdir(parents=True)
        shutil.copy(java, root / "opt/certificates/cacerts")
