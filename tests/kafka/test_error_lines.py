"""Exceptions of Kafka's Java client as errors of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming_app.errors import JobError, MissingTopicError, NotAuthorizedError, UnreachableError
from streaming_app.kafka.error_lines import to_job_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTIES = {"bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("class_name", "error_type"),
    [
        ("CoordinatorNotAvailableException", UnreachableError),
        ("UnknownTopicOrPartitionException", MissingTopicError),
        ("TopicAuthorizationException", NotAuthorizedError),
        ("UnknownServerException", JobError),
    ],
)
def test_the_kind_of_error_tells_whether_waiting_may_help(
    spark: SparkSession, class_name: str, error_type: type[JobError]
) -> None:
    jvm = spark._jvm
    assert jvm is not None
    cause = getattr(jvm.org.apache.kafka.common.errors, class_name)("not now")
    error = to_job_error(jvm.java.util.concurrent.ExecutionException(cause), PROPERTIES, "t")
    assert type(error) is error_type
    assert "\n" not in str(error)
