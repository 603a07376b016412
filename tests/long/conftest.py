"""What several long tests share: a job that reads the groups of real applications."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_app.sandbox.broker import LocalBroker
from tests.long.rig import Rig
from tests.support.compared_tools import SHORT_SESSIONS


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    properties = SHORT_SESSIONS | {"group.streams.max.session.timeout.ms": "60000"}
    at_once = {"StreamsGroupDown": {"for": 0}, "StreamsGroupStalled": {"for": 0}}
    config = {"alerts": {"rules": at_once}, "metrics": {"listen": "127.0.0.1:0"}}
    with Rig(tmp_path, config, LocalBroker(tmp_path / "broker", properties=properties)) as started:
        yield started
