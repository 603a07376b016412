"""Errors of requests as errors of the job."""

from __future__ import annotations

import pytest
from kafka.errors import CoordinatorNotAvailableError, KafkaConnectionError, SaslAuthenticationFailedError, UnknownError

from streaming_app.errors import JobError, UnreachableError
from streaming_app.kafka.error_lines import to_job_error
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.process import reserve_port


@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (CoordinatorNotAvailableError(), UnreachableError),
        (KafkaConnectionError(), UnreachableError),
        (SaslAuthenticationFailedError(), UnreachableError),  # nothing listens there any more
        (UnknownError("not\nnow"), JobError),
        (GroupError(69), JobError),
    ],
)
def test_the_kind_of_error_tells_whether_waiting_may_help(error: Exception, error_type: type[JobError]) -> None:
    with reserve_port() as closed:
        found = to_job_error(error, {"bootstrap.servers": f"127.0.0.1:{closed.getsockname()[1]}"})
    assert type(found) is error_type
    assert "\n" not in str(found)
