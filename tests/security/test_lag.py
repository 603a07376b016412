"""The lag of a job whose principal may describe some topics only, and then some groups only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.admin import ACLOperation, ResourcePattern, ResourceType

from streaming_app.job.lag_pass import describe_errors
from streaming_app.kafka.connection import Admin
from streaming_app.kafka.security import security_settings
from tests.security.conftest import ClientConfig
from tests.security.security_harness import SecurityHarness
from tests.support.lag_cluster import LagCluster
from tests.support.offsets_log import RawRecord

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("without_acls")]


@pytest.fixture
def admin(secured: SecurityHarness, client_configs: Mapping[str, ClientConfig]) -> Iterator[Admin]:
    config = client_configs["PLAIN"]
    made = Admin(bootstrap_servers=secured.broker.address(config.listener), **security_settings(config.properties))
    yield made
    made.close()


def test_the_lag_of_hidden_topics_is_null_and_one_line_names_them_and_the_acl(
    secured: SecurityHarness,
    admin: Admin,
    read_offsets: Callable[..., list[RawRecord]],
    unique: Callable[[str], str],
    group_id: str,
    tmp_path: Path,
) -> None:
    client, server = secured.client, secured.broker.bootstrap_server
    shown, hidden, other = unique("shown"), unique("hidden"), unique("other")
    with KafkaProducer(bootstrap_servers=server) as producer:
        for topic in (shown, hidden):
            client.create_topic(topic)
            for _ in range(5):
                producer.send(topic, b"x")
    for group in (group_id, other):
        client.commit_offsets(group, {(shown, 0): 2, (hidden, 0): 2})
    cluster = LagCluster(tmp_path / "warehouse", client, read_offsets, server)
    cluster.read_log(group_id, other)
    allowed = ResourcePattern(ResourceType.TOPIC, shown), ResourcePattern(ResourceType.GROUP, group_id)
    secured.allow(*((ACLOperation.DESCRIBE, one) for one in allowed))

    result = cluster.passes.run(admin)

    lags = {(row.group_id, row.topic): (row.lag, row.log_end_offset) for row in result.rows}
    # OffsetFetch leaves hidden topics out, as if they had no commit; of the other group the log has all commits.
    assert lags.get((group_id, hidden), (None, None)) == (None, None)
    assert lags[group_id, shown] == lags[other, shown] == (3, 5)
    assert lags[other, hidden] == (None, None)
    assert all(row.offset_status == "UNKNOWN" for row in result.rows if row.topic == hidden)
    line = describe_errors(result.errors, result.away)
    assert line is not None
    assert "\n" not in line
    assert f"TOPIC_AUTHORIZATION_FAILED: {hidden}; grant Describe on them" in line
    assert f"GROUP_AUTHORIZATION_FAILED: group {other}; grant Describe on them" in line

    describe_all = [
        (ACLOperation.DESCRIBE, ResourcePattern(kind, "*")) for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    secured.allow(*describe_all)
    cluster.now += 400
    result = cluster.passes.run(admin)
    assert {(row.topic, row.lag) for row in result.rows} == {(shown, 3), (hidden, 3)}
    # Nothing has moved for 400 s, so the pass reads whether records or only markers of transactions wait.
    line = describe_errors(result.errors, result.away)
    assert line is not None
    assert line.endswith("grant Read on them")
    assert "Describe" not in line

    secured.allow(*describe_all, (ACLOperation.READ, ResourcePattern(ResourceType.TOPIC, "*")))
    cluster.now += 400
    result = cluster.passes.run(admin)
    assert {(row.topic, row.lag) for row in result.rows} == {(shown, 3), (hidden, 3)}
    assert describe_errors(result.errors, result.away) is None
