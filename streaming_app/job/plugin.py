"""Whether the brokers have a topology description plugin: then a description that is missing is worth an alert.

Asked of their config (KIP-1331: `group.streams.topology.description.plugin.class`), which takes the ACL DescribeConfigs
on the cluster. Without it the groups' own records must show it, see `core.rules.descriptions_since`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streaming_app.job.source import admin_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLUGIN_CLASS = "group.streams.topology.description.plugin.class"
_ANSWER_MS = 10_000


def has_description_plugin(spark: SparkSession, properties: Mapping[str, str]) -> bool:
    """Whether some broker's config names a plugin; False where it may not be asked, or the broker knows no such key."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded by those who need it

    jvm: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
    common, wait = jvm.org.apache.kafka.common.config, jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    admin = admin_client(jvm, properties, _ANSWER_MS)
    try:
        broker = admin.describeCluster().nodes().get(_ANSWER_MS, wait).iterator().next().idString()
        asked = common.ConfigResource(common.ConfigResource.Type.BROKER, broker)
        told = admin.describeConfigs(jvm.java.util.List.of(asked)).all().get(_ANSWER_MS, wait).get(asked)
        entry = told.get(_PLUGIN_CLASS)
        return entry is not None and bool(entry.value())
    except Py4JJavaError:
        return False
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))
