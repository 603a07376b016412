"""The Java home for Spark, of a Java that has the module which Spark asks for, and of one that lacks it."""

import subprocess
from pathlib import Path

import pytest

from streaming_app.jvm.spark_installation import spark_java_home

_JAVA = "#!/bin/sh\necho 'openjdk version \"21.0.8\"' >&2\nprintf '%s\\n' \"$@\"\n"
_OPTION = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a runtime that says it has `java.base` alone, and prints its arguments."""
    home = tmp_path / "it's a runtime"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(_JAVA, "utf-8")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text('MODULES="java.base"\n', "utf-8")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("STREAMS_GROUPS_CACHE", str(tmp_path / "cache"))
    return home


def arguments(home: Path, *given: str) -> list[str]:
    run = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


@pytest.mark.usefixtures("java")
def test_a_java_without_the_module_is_started_without_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = spark_java_home()
    assert home.parent == tmp_path / "cache" / "java-homes"
    assert arguments(home, "-Xmx1g", _OPTION, "a b", "", "$HOME", "--add-modules=java.sql") == [
        *("-Xmx1g", "a b", "", "$HOME", "--add-modules=java.sql")
    ]
    assert spark_java_home() == home
    monkeypatch.setenv("JAVA_HOME", str(home))  # as a session sets it
    assert spark_java_home() == home


@pytest.mark.parametrize("release", ['MODULES="java.base jdk.incubator.vector"\n', None])
def test_a_java_that_has_the_module_or_does_not_say_is_used_itself(java: Path, release: str | None) -> None:
    (java / "release").unlink()
    if release:
        (java / "release").write_text(release, "utf-8")
    assert spark_java_home() == java.resolve()
