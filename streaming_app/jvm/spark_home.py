"""Which Spark a JVM is started from: the one of `SPARK_HOME`, if it has the version of the installed PySpark.

Many machines have `SPARK_HOME` set for another Spark. PySpark would start that one, with which neither PySpark nor our
jars work. Variables of Spark Connect would make PySpark look for a server: the job needs a JVM of its own.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from streaming_app.jvm.tested_versions import installed

_VARIABLE = "SPARK_HOME"
_OF_CONNECT = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED")


def spark_home() -> Path:
    """Return the directory of Spark."""
    named = os.environ.get(_VARIABLE)
    return Path(named) if named and _fits(Path(named)) else _own()


def use_spark_home() -> str | None:
    """Let PySpark start the Spark of `spark_home` in this process; return a line if that is not what was set."""
    named, home = os.environ.get(_VARIABLE), spark_home()
    for name in _OF_CONNECT:
        os.environ.pop(name, None)
    os.environ[_VARIABLE] = str(home)
    if named and Path(named) != home:
        return f"SPARK_HOME ({named}) has no Spark {installed().spark}: the job uses that of the installed PySpark"
    return None


def _fits(home: Path) -> bool:
    return any((home / "jars").glob(f"spark-core_*-{installed().spark}.jar"))


def _own() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None  # noqa: S101 - its version is known
    assert spec.origin is not None  # noqa: S101 - it is a package with a file
    return Path(spec.origin).parent
