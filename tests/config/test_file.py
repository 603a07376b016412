"""The YAML file and its references: what is read, and the line that is printed for an invalid file."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_app.config.file import read_yaml
from streaming_app.config.load import load
from streaming_app.errors import ConfigError


def error_lines(file: Path) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load(file)
    return [line.replace(str(file), "FILE") for line in raised.value.lines]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "alerts:\n  # interval: 5s\nsinks:\n"], ids=repr)
def test_a_file_without_values_is_an_empty_mapping(text: str, write: Callable[[str], Path]) -> None:
    assert read_yaml(write(text)) == ({}, {})


def test_keys_are_text_without_quotes(write: Callable[[str], Path]) -> None:
    text = "conf: {on: 1, 2: x, null: y}\nlag: &a {allowed: 3}\ncopies: {<<: *a, interval: 1s}"
    assert read_yaml(write(text))[0] == {
        "conf": {"on": 1, "2": "x", "null": "y"},
        "lag": {"allowed": 3},
        "copies": {"allowed": 3, "interval": "1s"},
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("cluster: a\ntopic: [b\n", "FILE: line 3, column 1: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", "FILE: line 5, column 3: duplicate key c, first in line 3"),
        ("cluster: !!python/object/apply:os.system [id]", None),
        ("- cluster: a", "FILE: must contain keys and values, such as `warehouse: /var/lib/streams-groups`"),
        (b"cluster: \xff", None),
        ("conf: &a\n  b: *a", "FILE: Circular reference detected"),
        ("{[a]: b}", None),
        ("<<: {2026-01-01: a}", None),
    ],
    ids=lambda text: repr(text)[:30],
)
def test_an_invalid_file_is_one_line_that_names_the_position(
    text: str | bytes, line: str | None, write: Callable[[str | bytes], Path]
) -> None:
    (printed,) = error_lines(write(text))
    assert printed.startswith("FILE: ")
    assert "\n" not in printed
    assert line is None or printed == line


@pytest.mark.slow
def test_a_file_that_is_nested_too_deeply_is_one_line(write: Callable[[str | bytes], Path]) -> None:
    gc.collect()
    gc.disable()  # what other tests left must not be collected at this depth: pytest's hook would exceed it, too
    try:
        assert error_lines(write("a: " + "[" * 5000)) == ["FILE: nested too deeply"]
    finally:
        gc.enable()


def test_references_are_replaced_by_what_they_name_at_any_depth(
    tmp_path: Path, write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PART", "b")
    (tmp_path / "secret").touch(0o600)
    (tmp_path / "secret").write_text("hunter2\n")
    text = f"a: ['x${{env:PART}}y', {{'${{env:PART}}': '${{file:{tmp_path}/secret}}'}}]\nn: 1"
    resolved, secrets = read_yaml(write(text))
    assert resolved == {"a": ["xby", {"${env:PART}": "hunter2"}], "n": 1}
    assert secrets == {"b": "${env:PART}", "xby": "x${env:PART}y", "hunter2": f"${{file:{tmp_path}/secret}}"}


def test_each_reference_without_a_value_is_a_line_that_names_its_key(
    write: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "binary").touch(0o600)
    (tmp_path / "binary").write_bytes(b"\xff")
    values = ["${file:/nowhere/x}", "${env:}", f"${{file:{tmp_path}}}", f"${{file:{tmp_path}/binary}}"]
    sinks = "".join(f"- {{name: s{number}, type: webhook, url: '{value}'}}\n" for number, value in enumerate(values))
    text = f"topic: ${{env:NO_SUCH_VARIABLE}}\nsinks:\n{sinks}"
    assert error_lines(write(text)) == [
        "FILE: topic: the environment variable NO_SUCH_VARIABLE is not set",
        "FILE: sinks[0].url: cannot read /nowhere/x: No such file or directory",
        "FILE: sinks[1].url: the environment variable is not set",
        f"FILE: sinks[2].url: cannot read {tmp_path}: Is a directory",
        f"FILE: sinks[3].url: {tmp_path}/binary is not UTF-8 text",
    ]


def test_the_placeholder_of_a_secret_is_refused(write: Callable[[str], Path]) -> None:
    assert error_lines(write("sinks:\n- {type: webhook, url: '**********'}")) == [
        "FILE: sinks[0].url: is the placeholder printed for a secret, not the secret"
    ]
