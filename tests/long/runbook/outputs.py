"""What the command of a rule prints, as the runbook shows it: `deploy/outputs`, one file for each rule."""

import re
import socket
import textwrap
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import groupby, takewhile

from tests.support.kafka_tool import column_slices

WIDTH = 116
_NEWEST = datetime(2026, 11, 27, 9, 30, tzinfo=timezone.utc)
"""What the newest time becomes that has passed; the others keep their distance from it."""
_LEFT_OUT = "..."
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z?")
_CLOCK = re.compile(r"(?<=since )\d\d:\d\d:\d\dZ")
_VARYING = (
    (re.compile(r"\b[0-9a-f]{12}\b|(?<![\w-])(?=[\w-]*[\d_-])[\w-]{22}(?![\w-])|[0-9a-f-]{36}"), "ID"),
    (re.compile(r"\d[\d,.:]*( ?(ms|s|min|h|d|GiB|MiB|MB|kB)\b)?"), "0"),
    (re.compile(r"(\b0[smhd]?){2,}"), "0"),
    (re.compile(r"-{2,}|\s+"), " "),
)


def show(
    printed: str, *, keep: Iterable[str] = (), columns: Iterable[str] = (), hidden: Iterable[tuple[str, str]]
) -> str:
    """Return what a command printed as the page shows it.

    Of its lines only those that one of `keep` is found in, of a table only `columns`, and neither hosts nor paths of
    this machine, which are `hidden` with what is shown instead. Times are others, with the same time between them.
    """
    patterns = [re.compile(one) for one in keep]
    lines = printed.rstrip().splitlines()
    lines = [one for one in lines if not patterns or any(pattern.search(one) for pattern in patterns)]
    if wanted := list(columns):
        lines = list(_choose(lines, wanted))
    text = re.sub(r"process \d+ on", "process 4711 on", "\n".join(lines))
    text = re.sub(r" \d+ notifications? waiting;", "", text)  # for a moment
    for real, shown in (*hidden, (socket.gethostname(), "streams-1")):
        text = re.sub(rf"\b{re.escape(real)}\b" if real.isalnum() else re.escape(real), shown, text)
    return "".join(f"{part}\n" for line in _move_times(text).splitlines() for part in _wrap(line))


def shape(text: str) -> list[str]:
    """Return the lines of an output without what differs each time: numbers, times and ids."""
    text = " ".join(text.split("\n    ")) if text else text
    for pattern, shown in _VARYING:
        text = (
            pattern.sub(shown, text) if shown != " " else "\n".join(pattern.sub(" ", one) for one in text.split("\n"))
        )
    return [line.strip() for line in text.strip().split("\n")]


def _choose(lines: list[str], wanted: list[str]) -> Iterator[str]:
    """Yield the lines, of each table only these columns, with dots where others were between them."""
    head = next((number for number, line in enumerate(lines) if wanted[0] in line.split(" ")), len(lines))
    yield from lines[:head]
    if head == len(lines):
        return
    table = list(takewhile(str.strip, lines[head:]))
    chosen: list[list[str]] = []
    for is_wanted, cells in groupby(column_slices(lines[head]), key=lambda one: one[0] in wanted):
        if is_wanted:
            chosen += [[line[cell].strip() for line in table] for _, cell in cells]
        elif chosen:
            chosen.append([_LEFT_OUT] * len(table))
    widths = [max(map(len, column)) for column in chosen]
    for row in zip(*chosen, strict=True):
        yield " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield from lines[head + len(table) :]


def _wrap(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line,
        WIDTH,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=len(line) > WIDTH,
    ) or [line]


def _move_times(text: str) -> str:
    now = datetime.now(timezone.utc)
    times = [time for one in _TIME.findall(text) if (time := _parse(one)) <= now]
    by = _NEWEST - max(times, default=now)
    text = _TIME.sub(lambda found: _again(found[0], by), text)
    return _CLOCK.sub(f"{_NEWEST:%H:%M:%SZ}", text)


def _parse(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "").replace(" ", "T")).replace(tzinfo=timezone.utc)


def _again(text: str, by: timedelta) -> str:
    unit = "milliseconds" if "." in text else "seconds"  # a table keeps its width
    moved = (_parse(text) + by).isoformat(sep="T" if "T" in text else " ", timespec=unit).replace("+00:00", "")
    return f"{moved}Z" if text.endswith("Z") else moved
