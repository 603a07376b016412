"""Fixtures of the checks that need a Docker engine, and the lines that `make check-deploy` prints at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.deploy.docker_engine import Engine, EngineUnavailableError, docker_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A Docker engine. Without one the test is skipped, and says what is missing."""
    try:
        with docker_engine() as running:
            yield running
    except EngineUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Prints a line that pytest does not keep for itself: what was measured."""
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")

    def write(line: str) -> None:
        reporter.ensure_newline()
        reporter.write_line(line)

    return write
