"""The documents of the project, and functions that extract code blocks, commands, links and headings for tests."""

import re
import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
DOCUMENTS = (
    README,
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
    ROOT / "schemas" / "RECORDS.md",
)
PROGRAM = "streams-groups"

_FENCED = re.compile(r"^(?P<fence>```+)(?P<language>\S*)[^\n]*\n(?P<text>.*?)^(?P=fence)$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_SHELL = ("", "sh")


class CodeBlock(NamedTuple):
    language: str
    text: str


def name(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def code_blocks(document: Path, *languages: str) -> list[CodeBlock]:
    found = (CodeBlock(match["language"], match["text"]) for match in _FENCED.finditer(document.read_text("utf-8")))
    return [block for block in found if not languages or block.language in languages]


def prose(document: Path) -> str:
    """Return the document's text without its fenced blocks."""
    return _FENCED.sub("", document.read_text("utf-8"))


def shell_commands(document: Path) -> Iterator[list[str]]:
    """Return every simple command of the shell blocks as its words, without leading assignments."""
    for block in code_blocks(document, *_SHELL):
        for line in re.sub(r"\\\n|(?<=\|)\n", " ", block.text).splitlines():
            yield from _simple_commands(line)


def _simple_commands(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    for is_end, words in groupby(lexer, key=lambda word: word == "--" or set(word) <= set("|&;")):
        command = list(words)
        while command and re.match(r"\w+=", command[0]):
            del command[0]
        if command and not is_end:
            yield command


def program_calls(document: Path) -> Iterator[list[str]]:
    """Return the arguments of each call of `streams-groups`, in shell blocks and within sentences."""
    for command in shell_commands(document):
        if command[0] == PROGRAM:
            yield command[1:]
    for code in _INLINE.findall(prose(document)):
        if code.split()[0] == PROGRAM and len(code.split()) > 1:
            yield shlex.split(code)[1:]


def links(document: Path) -> list[str]:
    return _LINK.findall(_INLINE.sub("", prose(document)))


def anchors(document: Path) -> set[str]:
    """Return the anchors of the document's headings, in GitHub's form."""
    headings = _HEADING.findall(prose(document))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
