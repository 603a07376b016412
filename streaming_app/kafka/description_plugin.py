"""Whether the brokers have a topology description plugin: only then does a missing description deserve an alert.

Read from the broker config `group.streams.topology.description.plugin.class` (KIP-1331), which takes the ACL
DescribeConfigs on the cluster. Without it the groups' own records must show it, see `alerts.description_support`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streaming_app.kafka.offsets_topic import create_admin_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLUGIN_CLASS = "group.streams.topology.description.plugin.class"
_TIMEOUT_MS = 10_000


def has_description_plugin(spark: SparkSession, properties: Mapping[str, str]) -> bool | None:
    """Return whether the config of some broker names a plugin; None where it may not or cannot be read.

    False is only returned once every broker's config was read; brokers before 4.4 have no such config.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

    jvm: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
    common, unit = jvm.org.apache.kafka.common.config, jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    admin = create_admin_client(jvm, properties, _TIMEOUT_MS)
    try:
        resources = jvm.java.util.ArrayList()
        nodes = admin.describeCluster().nodes().get(_TIMEOUT_MS, unit)
        for node in jvm.java.util.ArrayList(nodes):  # py4j iterates lists, and not every collection
            resources.add(common.ConfigResource(common.ConfigResource.Type.BROKER, node.idString()))
        configs = admin.describeConfigs(resources).all().get(_TIMEOUT_MS, unit)
        entries = [configs.get(resource).get(_PLUGIN_CLASS) for resource in resources]
        return any(entry is not None and bool(entry.value()) for entry in entries)
    except Py4JJavaError:
        return None
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))
