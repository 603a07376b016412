"""A duration is written the same way in every option of every command: its forms are in `tests/common/test_text.py`."""

import click
import pytest

from streaming_app.cli.main import main

TIMES = [
    pytest.param(option, id=f"{name} {option.opts[0]}")
    for name, command in main.commands.items()
    for option in command.params
    if option.metavar in {"DURATION", "TIME"}
]
assert len(TIMES) > 6, "commands have more such options than that"


@pytest.mark.parametrize("option", TIMES)
def test_an_option_with_another_text_is_wrong_usage(option: click.Parameter) -> None:
    with pytest.raises(click.BadParameter, match=r'must be .* not "in a while"'):
        option.process_value(click.Context(main), "in a while")


def test_a_time_without_a_unit_is_in_seconds() -> None:
    (option,) = (one for one in main.commands["run"].params if one.opts[0] == "--trigger")
    for text, value in (("30", 30.0), ("1h30m", 5_400.0)):
        assert option.process_value(click.Context(main), text) == value
