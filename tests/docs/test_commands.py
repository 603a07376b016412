"""Every command in the documents can be typed: the options exist, and so do the make targets and the modules."""

import re
from pathlib import Path

import click
import pytest

from streaming_app.cli.main import main
from tests.support.documents import DOCS, DOCUMENTS, PROGRAM, ROOT, name, program_calls, shell_commands

MAKE_TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


CALLS = [
    pytest.param(arguments, id=f"{name(document)}: {' '.join(arguments)}")
    for document in DOCUMENTS
    for arguments in program_calls(document)
]
assert len(CALLS) > 100, "the documents have more calls than that"


def parse(arguments: list[str]) -> click.Context:
    """Parse a call as the program does, without running it."""
    command = main.commands[arguments[0]]
    return command.make_context(arguments[0], arguments[1:], parent=click.Context(main))


@pytest.mark.parametrize("arguments", CALLS)
def test_every_call_of_the_program_parses(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("records.tsv").touch()  # what the examples of `decode` read
    assert not arguments or arguments[0] in main.commands
    if len(arguments) > 1:  # a sentence may name a command without what it requires
        parse(arguments).close()


def test_every_command_and_every_option_of_the_job_is_in_its_page() -> None:
    commands, operating = (DOCS / "commands.md").read_text("utf-8"), (DOCS / "operating.md").read_text("utf-8")
    assert [one for one in main.commands if f"{PROGRAM} {one}" not in commands] == []
    options = [name for option in main.commands["run"].params for name in option.opts]
    assert [one for one in options if f"`{one}" not in operating] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_make_target_and_module_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text("utf-8")
    named = {command[1] for command in shell_commands(document) if command[0] == "make" and len(command) > 1}
    named |= set(re.findall(r"`(?:\w+=\S+ )*make ([\w-]+)`", text))
    assert named - MAKE_TARGETS == set()
    modules = [re.sub(r"\.", "/", module) for module in re.findall(r"python -m ([\w.]+)", text)]
    ours = [module for module in modules if (ROOT / module.split("/")[0]).is_dir()]
    assert [m for m in ours if not (ROOT / f"{m}.py").exists() and not (ROOT / m / "__main__.py").exists()] == []
