"""Errors of requests as errors of the job."""

import pytest
from kafka.errors import (
    CoordinatorNotAvailableError,
    InvalidReceiveError,
    KafkaConnectionError,
    NodeNotReadyError,
    SaslAuthenticationFailedError,
    UnknownError,
)
from pyspark.sql import SparkSession

from streaming_app.errors import JobError, UnreachableError
from streaming_app.kafka import diagnose
from streaming_app.kafka.error_lines import to_job_error
from streaming_app.kafka.offsets_topic import _java_error
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.child_process import reserve_port
from tests.support.offsets_topic import describe_offsets_topic
from tests.support.receivers import serve_connections

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (CoordinatorNotAvailableError(), UnreachableError),
        (KafkaConnectionError(), UnreachableError),
        (NodeNotReadyError("No node_id provided"), UnreachableError),  # while a broker restarts
        (SaslAuthenticationFailedError(), UnreachableError),  # nothing listens there any more
        (InvalidReceiveError("Invalid frame length"), UnreachableError),  # an alert of TLS
        (UnknownError("not\nnow"), JobError),
        (GroupError(69), JobError),
    ],
)
def test_the_kind_of_error_tells_whether_waiting_may_help(error: Exception, error_type: type[JobError]) -> None:
    with reserve_port() as closed:
        found = to_job_error(error, {"bootstrap.servers": f"127.0.0.1:{closed.getsockname()[1]}"})
    assert type(found) is error_type
    assert "\n" not in str(found)
    assert "node_id" not in str(found)


def test_each_server_that_is_away_has_its_own_cause() -> None:
    """Seen: the cause of the first one was said of all."""
    with reserve_port() as closed:
        here, nowhere = f"127.0.0.1:{closed.getsockname()[1]}", "no-such-host.invalid:9092"
        both, same = f"{here},{nowhere}", f"{here},{here}"
        for line in (diagnose.find_cause(both, {}), diagnose.explain(both, {}).line):
            assert line
            assert f"{here} (nothing listens there;" in line
            assert f"{nowhere} (the host name cannot be resolved;" in line
        assert diagnose.explain(same, {}).line.startswith(f"No Kafka broker answers at {same}: nothing listens there;")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_brokers_behind_a_balancer_that_are_down_are_waited_for(protocol: str) -> None:
    with serve_connections(lambda *_: None) as port:  # each connection is closed
        properties = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": protocol}
        assert type(to_job_error(KafkaConnectionError(), properties)) is UnreachableError


@pytest.mark.parametrize(
    ("class_name", "error_type"),
    [
        ("DisconnectException", UnreachableError),  # of the last attempt
        ("LeaderNotAvailableException", UnreachableError),
        ("TopicAuthorizationException", GroupError),
    ],
)
def test_of_the_java_client_the_kind_of_error_tells_the_same(
    spark: SparkSession, class_name: str, error_type: type[Exception]
) -> None:
    jvm = spark._jvm
    assert jvm is not None
    errors = jvm.org.apache.kafka.common.errors
    cause = getattr(errors, class_name)("not\nnow")
    error = jvm.java.util.concurrent.ExecutionException(errors.TimeoutException("it takes too long", cause))
    found = _java_error(error, NOWHERE, "t")
    assert type(found) is error_type
    assert "\n" not in str(found)


def test_a_kerberos_server_that_is_down_is_waited_for(spark: SparkSession) -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{module} keyTab="/none" principal="a@NOWHERE.INVALID";',
    }
    with pytest.raises(UnreachableError, match="nothing listens there"):
        describe_offsets_topic(spark, {**NOWHERE, **login}, "t")
