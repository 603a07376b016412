"""The steps of rules and formatters grow with the text of a tenant, and no faster: steps are counted, not seconds.

A step is a line of Python that is executed. What an expression of `re` does is not one, so the expressions of modules
that see text from the log are taken apart: none repeats what itself repeats, which is what takes exponential time.
"""

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import FrameType
from typing import Any

import pytest

from streaming_app import notify
from streaming_app.alerts.alert import FIRING
from streaming_app.config.alerts import AlertSettings
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.notify import message, webhook
from streaming_app.queries import output
from tests.alerts.evaluation import findings_of
from tests.alerts.examples import make_alert
from tests.alerts.test_rules import WRONG
from tests.long.hostile import STORED
from tests.support.healthy_group import healthy_group

NOW = datetime(2026, 11, 24, 9, tzinfo=timezone.utc)
SHORT, LONG = 1_000, 4_000
MOST = 1.25 * LONG / SHORT
"""Times as many steps for the longer text."""
SLACK = 2_000
"""Steps that do not depend on the text, and may be counted for one of the two only."""
PARTS = [
    *("1", "1_", "-1", "v1.", "blue", "-blue", "aaaaa-1", "(", "[a-", "\\", "%", "${", "é"),
    *("@channel", "[a](b)", "{{.}}", "\u202e", "\x1b[2J", "\n", STORED),
]
SETTINGS = AlertSettings(descriptions="always").rule_settings_of()


def steps(call: Callable[[], Any]) -> int:
    """Return how many lines of Python a call executes."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def text_of(part: str, length: int) -> str:
    return (part * (length // len(part) + 1))[:length] + "!"


def grows_too_fast(call: Callable[[str], Any], part: str) -> tuple[int, int] | None:
    """Return the steps for a short and a long text where the long one takes too many; None where it does not."""
    short, long = steps(lambda: call(text_of(part, SHORT))), steps(lambda: call(text_of(part, LONG)))
    return None if long <= MOST * short + SLACK else (short, long)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: ascii(part[:8])[1:-1])
def test_rules_take_steps_in_proportion_to_the_text(part: str) -> None:
    wrong = [case for cases in WRONG.values() for case, _, _ in cases]

    def call(text: str) -> None:
        old = NOW - timedelta(days=2)
        groups = [replace(healthy_group(old), **case, group_id=f"{text}{number}") for number, case in enumerate(wrong)]
        groups = [replace(one, set_aside_reason=text) for one in groups]
        rivals = [replace(one, group_id=f"{text}-v{n}", first_seen_at=NOW) for n, one in enumerate(groups)]
        every: list[GroupSnapshot] = [*groups, *rivals]
        found = findings_of(every, NOW, settings_of=SETTINGS)
        assert {key.group_id for key in found} == {one.group_id for one in every}

    assert grows_too_fast(call, part) is None


def links(text: str) -> dict[str, str | None]:
    return {"runbook_url": text, "page_url": None}


FORMATTERS: dict[str, Callable[[str], Any]] = {
    "title": lambda text: message.format_title([alert(text)], FIRING),
    "summary": lambda text: message.format_summary(alert(text), FIRING),
    "message": lambda text: message.format_message(alert(text), FIRING, links(text)),
    "message of several": lambda text: message.format_list(several(text), FIRING, 20, [links(text)] * 20),
    "disarmed": message.disarm,
    "webhook": lambda text: message.dump_json(webhook.payload(alert(text), FIRING, links(text))),
    "table": lambda text: output.columns([{"GROUP": text, "REASON": text}]),
    "CSV": lambda text: output.as_csv([text], [{text: text}]),
    "JSON": lambda text: output.as_json({"group": text}),
}


def alert(text: str) -> Any:
    return make_alert("sink", group_id=text, summary=text, evidence={"reason": text, "names": [text, text]})


def several(text: str) -> list[Any]:
    return [replace(alert(text), group_id=f"{text}{number}") for number in range(5)]


@pytest.mark.parametrize("name", FORMATTERS)
def test_formatters_take_steps_in_proportion_to_the_text(name: str) -> None:
    assert {part: found for part in PARTS if (found := grows_too_fast(FORMATTERS[name], part))} == {}


def expressions() -> Iterator[tuple[str, str]]:
    """Yield module and pattern of every compiled expression that may meet text from the log.

    import-linter keeps `re` out of all other rooms that see such text.
    """
    rooms = pkgutil.iter_modules(notify.__path__, f"{notify.__name__}.")
    for module in map(importlib.import_module, ["streaming_app.text", *(one.name for one in rooms)]):
        found = ((name, one) for name, one in vars(module).items() if isinstance(one, re.Pattern))
        yield from ((f"{module.__name__}.{name}", one.pattern) for name, one in found)


def nested_repeats(pattern: str) -> bool:
    """Return whether a part that may repeat holds another one that may repeat, as in `(a+)+`."""
    left = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", pattern)
    while group := re.search(r"\((?:\?[:!=<]+)?([^()]*)\)([*+{]?)", left):
        repeats = re.search(r"[*+{]", group[1])
        if repeats and group[2]:
            return True
        left = left.replace(group[0], "x+" if repeats or group[2] else "x")
    return False


def test_no_expression_that_meets_text_from_the_log_can_take_exponential_time() -> None:
    found = list(expressions())
    assert found
    assert [name for name, pattern in found if nested_repeats(pattern)] == []
