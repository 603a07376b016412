"""The files for a session that is given: the command of the application, and the notebook."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming_app.jvm.jars import connector_jars
from streaming_app.jvm.spark_installation import TESTED
from streaming_app.jvm.spark_session import _CONF, SESSION_CONF
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from tests.support.container import Broker

SPARK = Path(__file__).parents[2] / "deploy" / "spark"
README = (SPARK / "README.md").read_text("utf-8")


def test_the_settings_of_the_readme_are_those_of_the_job_s_own_session() -> None:
    command = README.split("spark-submit --master")[1].split("deploy/spark/job.py")[0]
    settings = dict(setting.split("=") for setting in re.findall(r"--conf (\S+)", command))
    assert settings
    assert settings == {name: _CONF[name] for name in settings}
    assert not SESSION_CONF.keys() & settings.keys()


def cells() -> list[tuple[str, list[str]]]:
    """Return the text and the tags of each code cell of the notebook."""
    notebook = json.loads((SPARK / "notebook.ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    return [("".join(cell["source"]), cell["metadata"].get("tags", [])) for cell in code]


@pytest.mark.broker
def test_the_cells_of_the_notebook_run(
    spark: SparkSession,
    broker: Broker,
    client: StreamsGroupClient,
    unique: Callable[[str], str],
    create_warehouse: Callable[[Path], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    group, warehouse = unique("app"), create_warehouse(tmp_path / "warehouse")
    SimulatedMember(client, group, topology(subtopology("0", source_topics=[unique("missing")]))).join()
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "false")
    namespace: dict[str, Any] = {"spark": session}
    for text, tags in cells():
        if "session" in tags:  # it would fetch jars
            assert f'"{connector_jars(TESTED[0]).coordinates[0]}"' in text
            compile(text, "session", "exec")
            continue
        own = text.replace("broker:9092", broker.bootstrap_server).replace("/var/lib/streams-groups", str(warehouse))
        exec(own, namespace)  # noqa: S102 - the project's own
    printed = capsys.readouterr().out
    assert "Done: all available records are processed.\n" in printed
    assert f"|{group}" in printed
    assert printed.endswith("Stopped.\n")
    assert not namespace["job"].is_alive()
