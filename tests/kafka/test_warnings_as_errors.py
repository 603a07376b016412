"""`python -W error` ends no command: warnings of kafka-python's own code are filtered where it is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streaming_app.sandbox.broker import LocalBroker

_PROGRAM = """
import sys
from streaming_app.kafka.client import StreamsGroupClient
with StreamsGroupClient(sys.argv[1]) as client:
    client.create_topic("of-a-strict-python")
    client.commit_offsets("of-a-strict-python", {("of-a-strict-python", 0): 1})
"""


@pytest.mark.broker
def test_requests_are_sent_where_warnings_are_errors(broker: LocalBroker) -> None:
    command = [sys.executable, "-W", "error", "-c", _PROGRAM, broker.bootstrap_server]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
