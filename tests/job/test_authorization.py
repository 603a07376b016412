"""What the job needs of a cluster that gives nothing unasked: the README's ACLs, no more, and what it says without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType

from streaming_app.job.errors import JobError
from streaming_app.job.source import client_properties, examine
from streaming_app.local.answering import reserve
from streaming_app.local.broker import LocalBroker
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.member import Member
from streaming_app.protocol.topology import subtopology, topology
from streaming_app.serve.warehouse import Warehouse
from tests.job.running import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
TOPIC = "__consumer_offsets"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Guarded(NamedTuple):
    """A broker that lets `job` do what ACLs allow; at its other listener everybody is a superuser."""

    client: StreamsGroupClient
    address: str

    def allow(self, operation: ACLOperation, resource: ResourcePattern) -> None:
        self.client.admin.create_acls([ACL("User:job", "*", operation, ACLPermissionType.ALLOW, resource)])


@pytest.fixture
def guarded(start_broker: Callable[..., LocalBroker]) -> Iterator[Guarded]:
    with ExitStack() as held:
        plain, controller, sasl = (held.enter_context(reserve()).getsockname()[1] for _ in range(3))
    listeners = [f"{name}://127.0.0.1:{port}" for name, port in (("PLAINTEXT", plain), ("SASL", sasl))]
    own = start_broker(
        port=plain,
        properties={
            "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{controller}"]),
            "advertised.listeners": ",".join(listeners),
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": f'{_PLAIN} required user_job="secret";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )
    with StreamsGroupClient(own.bootstrap_server) as client:
        Member(client, "g", topology(subtopology("0", source_topics=["missing"]))).join()
        yield Guarded(client, f"127.0.0.1:{sasl}")


def properties_file(path: Path, password: str) -> Path:
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={_PLAIN} required username="job" password="{password}";\n'
    )
    return path


def test_each_missing_acl_is_named_and_with_all_the_job_runs(
    guarded: Guarded, spark: SparkSession, tmp_path: Path
) -> None:
    good = properties_file(tmp_path / "good.properties", "secret")
    bad = properties_file(tmp_path / "bad.properties", "wrong")
    topic = ResourcePattern(ResourceType.TOPIC, TOPIC)
    groups = ResourcePattern(ResourceType.GROUP, "streams-groups", ACLResourcePatternType.PREFIXED)

    def said(config: Path | None) -> str:
        with pytest.raises(JobError) as refused:
            examine(spark, client_properties(guarded.address, config), TOPIC)
        return str(refused.value)

    assert "refused the credentials of --command-config" in said(bad)
    assert "secret" not in said(bad)
    assert f"No Kafka broker answers at {guarded.address}" in said(None)
    assert f"lacks the ACL DESCRIBE on Topic:{TOPIC}" in said(good)
    guarded.allow(ACLOperation.DESCRIBE, topic)
    assert f"lacks the ACL READ on Topic:{TOPIC}" in said(good)
    guarded.allow(ACLOperation.READ, topic)
    assert "lacks the ACL DESCRIBE on Group:streams-groups" in said(good)
    guarded.allow(ACLOperation.DESCRIBE, groups)

    ran = run_job(guarded.address, tmp_path / "warehouse", "--command-config", good)
    assert ran.returncode == 0, ran.stderr
    rows = Warehouse(tmp_path / "warehouse").rows("SELECT group_id, state FROM groups")
    assert rows == [{"group_id": "g", "state": "NotReady"}]
