"""What the failure of a stream was: whether Spark's JVM is gone, and the cause in one line."""

from __future__ import annotations

import re

from streaming_app.errors import java_error_message

_MAX_CAUSE = 500  # characters of a line about a failure


def is_lost_connection(error: Exception) -> bool:
    """Return whether Spark's JVM does not answer any more."""
    from py4j.protocol import Py4JNetworkError  # noqa: PLC0415 - only the job loads Spark

    return isinstance(error, (Py4JNetworkError, ConnectionError))


def one_line(error: Exception) -> str:
    """Return what an error of Spark says."""
    return java_error_message(error)[:_MAX_CAUSE]


def cause_of(failure: str) -> str:
    """Return the most specific line of a streaming failure."""
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    summary = re.search(r"terminated with exception: (.+?)(?: SQLSTATE| ===|$)", lines[0])
    python = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Invalid): ", line)]
    java = [line.removeprefix(": ") for line in lines if line.startswith(": ")]  # after the line of py4j's error
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    found = [summary[1] if summary else lines[0], *java, *causes, *python]
    return ([one for one in found if not one.startswith("py4j.")] or found)[-1][:_MAX_CAUSE]
