"""Every rule of the runbook on a real broker: its command prints what the page shows, and its advice ends the alert.

`RECORD_OUTPUTS=1` writes what the commands print to `deploy/outputs`; `make generate` then puts it into the page.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.generate.runbook import OUTPUTS
from streaming_app.alerts.catalog import GROUP_ID, rules
from streaming_app.sandbox.broker import LocalBroker
from tests.long.rig import JobRig, Rig, broker_that_refuses
from tests.long.runbook.outputs import shape, show
from tests.long.runbook.states import STATES, State, Steps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(7200)
STATES_OF_GROUPS = [one for one in STATES if not one.of_job]
STATES_OF_THE_JOB = [one for one in STATES if one.of_job]
IS_RECORDED = bool(os.environ.get("RECORD_OUTPUTS"))
DESCRIPTION_MISSING = "StreamsGroupDescriptionMissing"
AT_ONCE: dict[str, Any] = {"rules": {name: {"for": 0} for name in rules()}, "interval": 1}
EXPECTED = {"groups": "visit-counts", "rules": {DESCRIPTION_MISSING: {"enabled": True, "for": 0}}}
"""Every other group is to have no description."""
OF_GROUPS = {
    "alerts": {
        **AT_ONCE,
        "descriptions": "always",
        "rules": {**AT_ONCE["rules"], DESCRIPTION_MISSING: {"enabled": False}},
        "overrides": [EXPECTED],
    },
    "offsets": {"trigger": 1},
}
OF_THE_JOB = {"alerts": AT_ONCE, "group_budget": {"members": 4}}


class Played:
    """States that were begun."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._running: dict[str, tuple[Steps, str | None]] = {}

    def begin(self, state: State) -> None:
        steps = state.play(self.rig)
        self._running[state.name] = steps, next(steps)

    def check(self, state: State) -> None:
        if state.name not in self._running:
            self.begin(state)
        steps, group_id = self._running[state.name]
        self.rig.await_open(state.rule, group_id)
        if state.is_shown:
            self._check_output(state, group_id)
        assert next(steps, "done") == "done"
        if state.ends:
            self.rig.await_end(state.rule, group_id)

    def _check_output(self, state: State, group_id: str | None) -> None:
        command = rules()[state.rule].confirm
        hidden = [
            *self.rig.hidden,
            (str(self.rig.warehouse), "/var/lib/streams-groups"),
            (self.rig.server, "broker-1:9092"),
            (str(self.rig.directory), "/etc/streams-groups"),
            ("127.0.0.1", "10.4.0.11"),
        ]

        def shown() -> str:
            printed = self.rig.run(command, may_fail=True, **({GROUP_ID: group_id} if group_id else {}))
            return show(printed, keep=state.keep, columns=state.columns, hidden=hidden)

        file = OUTPUTS / f"{state.rule}.txt"
        if IS_RECORDED:
            file.write_text(shown(), "utf-8")
        recorded = file.read_text("utf-8")
        assert wait_until(lambda: shape(shown()) == shape(recorded), interval=2), shown()


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Played]:
    """All states of groups that were chosen, begun together, as most alerts take some minutes."""
    chosen = {item.name for item in request.session.items}
    directory = tmp_path_factory.mktemp("groups")
    with Rig(directory, OF_GROUPS, broker_that_refuses(directory)) as rig:
        played = Played(rig)
        for state in STATES_OF_GROUPS:
            if any(f"[{state.name}]" in name for name in chosen):
                played.begin(state)
        yield played


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    directory = tmp_path_factory.mktemp("job")
    with JobRig(directory, OF_THE_JOB, LocalBroker(directory / "broker")) as rig:
        yield Played(rig)


@pytest.mark.parametrize("state", STATES_OF_GROUPS, ids=lambda state: state.name)
def test_the_output_is_as_recorded_and_the_advice_ends_the_alert(state: State, groups: Played) -> None:
    groups.check(state)


@pytest.mark.parametrize("state", STATES_OF_THE_JOB, ids=lambda state: state.name)
def test_the_same_of_the_job(state: State, job: Played) -> None:
    job.check(state)


def test_every_rule_is_played() -> None:
    assert {state.rule for state in STATES if state.is_shown} == set(rules())
