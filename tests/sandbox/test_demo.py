"""The lines that the demo prints at its end."""

import sys
from pathlib import Path

import pytest

from streaming_app.sandbox.demo import to_activate


def test_commands_to_try_begin_with_the_activation_where_the_shell_does_not_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(programs.parent))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert to_activate() is None  # an environment that cannot be activated
    (programs / "activate").touch()
    assert to_activate() == ". .venv/bin/activate"
    (tmp_path / "streams-groups").touch(mode=0o755)
    assert to_activate() is None
