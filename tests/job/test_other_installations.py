"""The job runs in the environments of other software, of services and of careful administrators."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from streaming_app.tables.reader import WarehouseReader, quote
from tests.support.container import Broker
from tests.support.job_runner import run_job
from tests.support.jvm_options import VARIABLES

NO_BROKER = "127.0.0.1:1"
_HDFS = """\
<configuration><property><name>fs.defaultFS</name><value>hdfs://unknown.invalid:9000</value></property></configuration>
"""
_SPARK_DEFAULTS = """\
spark.master yarn
spark.sql.timestampType TIMESTAMP_NTZ
spark.sql.catalogImplementation hive
spark.databricks.delta.properties.defaults.enableRowTracking true
spark.databricks.delta.properties.defaults.columnMapping.mode name
"""


@pytest.mark.broker
def test_a_job_runs_where_the_environment_is_of_another_spark_whose_defaults_do_not_change_the_tables(
    broker: Broker,
    client: StreamsGroupClient,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its files have the umask of the process."""
    group = unique("app")
    SimulatedMember(client, group, topology(subtopology("0", source_topics=["missing"]))).join()
    other, here, warehouse = tmp_path / "spark-3.5", tmp_path / "here", tmp_path / "Größe #1" / "wärehouse"
    for file, text in (
        (other / "jars" / "spark-core_2.12-3.5.1.jar", ""),
        (other / "conf" / "spark-defaults.conf", _SPARK_DEFAULTS),
        (other / "hadoop" / "core-site.xml", _HDFS),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    here.mkdir()
    for name, value in (
        ("SPARK_HOME", other),
        ("SPARK_CONF_DIR", other / "conf"),
        ("HADOOP_CONF_DIR", other / "hadoop"),
        ("SPARK_REMOTE", "sc://unknown.invalid:15002"),
        ("SPARK_API_MODE", "connect"),
        ("SPARK_CONNECT_MODE_ENABLED", "1"),
        ("PYSPARK_DRIVER_PYTHON", "jupyter"),
        ("PYSPARK_PYTHON", "/nonexistent/python"),
        ("LC_ALL", "C"),  # in which Java opens no file whose name is not ASCII
    ):
        monkeypatch.setenv(name, str(value))
    for name in VARIABLES:  # the JVM of a user
        monkeypatch.delenv(name, raising=False)
    before = os.umask(0o027)
    try:
        ran = run_job(broker.bootstrap_server, warehouse, cwd=here)
    finally:
        os.umask(before)
    assert ran.returncode == 0, ran
    assert f"Warning: SPARK_HOME ({other}) has no Spark " in ran.stdout + ran.stderr
    rows = WarehouseReader(warehouse).rows(f"SELECT state FROM groups WHERE group_id = {quote(group)}")
    assert rows == [{"state": "NotReady"}]
    table = DeltaTable(str(warehouse / "groups"))
    assert not table.protocol().writer_features
    assert not any("rowTracking" in name or "columnMapping" in name for name in table.metadata().configuration)
    left = {one.name for place in (tmp_path, here, warehouse.parent) for one in place.iterdir()}
    assert left == {other.name, here.name, warehouse.parent.name, warehouse.name}
    files = [file for file in warehouse.rglob("*") if file.is_file()]
    assert len(files) > 20
    assert [file for file in files if file.stat().st_mode & 0o027] == []
