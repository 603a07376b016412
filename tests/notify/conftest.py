"""The receivers that the tests send alerts to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.receivers import Alertmanager, Certificates, HttpReceiver, notify_of_all, start_alertmanager


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    """An HTTP server that keeps its requests."""
    with HttpReceiver() as running:
        yield running


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate authority that no system trusts, and certificates that it issued."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def alertmanager(tmp_path: Path, receiver: HttpReceiver) -> Iterator[Alertmanager]:
    """A real Alertmanager that notifies `receiver`."""
    with start_alertmanager(tmp_path, notify_of_all(receiver.url)) as running:
        yield running
