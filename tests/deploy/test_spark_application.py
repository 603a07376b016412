"""The files for a session that is given: the definition for the Spark operator, the application, and the notebook."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from streaming_app.config.settings import Settings
from streaming_app.job.stopping import STOP_SECONDS
from streaming_app.jvm import jars
from streaming_app.jvm.spark_installation import TESTED
from streaming_app.jvm.spark_session import _CONF, SESSION_CONF
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from streaming_app.text import GIB, parse_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = Path(__file__).parents[2] / "deploy" / "spark"
README = (SPARK / "README.md").read_text("utf-8")
CONFIG_MAP, APPLICATION = yaml.safe_load_all((SPARK / "spark-application.yaml").read_text("utf-8"))
SPEC = APPLICATION["spec"]
_POD = {"cores": int, "memory": str, "memoryOverhead": str, "envFrom": list}
FIELDS: dict[str, dict[str, type]] = {
    "spec": {
        **dict.fromkeys(("type", "pythonVersion", "mode", "sparkVersion", "image", "mainApplicationFile"), str),
        **dict.fromkeys(("driver", "executor", "restartPolicy", "sparkConf"), dict),
        "arguments": list,
    },
    "driver": {**_POD, "serviceAccount": str, "terminationGracePeriodSeconds": int, "configMaps": list, "ports": list},
    "executor": {**_POD, "instances": int},
    "restartPolicy": {"type": str, "onFailureRetryInterval": int, "onSubmissionFailureRetryInterval": int},
}
"""Of the fields of a SparkApplication of version v1beta2 those that the definition has, with their types.

They were compared with the operator's own definition of the resource, of August 2026.
"""


def test_the_definition_has_only_fields_of_the_operator() -> None:
    assert (APPLICATION["apiVersion"], APPLICATION["kind"]) == ("sparkoperator.k8s.io/v1beta2", "SparkApplication")
    parts = {"spec": SPEC, **{name: SPEC[name] for name in ("driver", "executor", "restartPolicy")}}
    found = {part: {field: type(value) for field, value in fields.items()} for part, fields in parts.items()}
    assert found == FIELDS
    assert all(isinstance(value, str) for value in SPEC["sparkConf"].values())
    assert {SPEC["type"], SPEC["mode"], SPEC["restartPolicy"]["type"]} == {"Python", "cluster", "Always"}


def test_the_definition_fits_the_job() -> None:
    (mounted,) = SPEC["driver"]["configMaps"]
    assert mounted["name"] == CONFIG_MAP["metadata"]["name"]
    assert SPEC["arguments"] == [f"{mounted['path']}/{name}" for name in CONFIG_MAP["data"]]
    settings = Settings.model_validate(yaml.safe_load(CONFIG_MAP["data"]["config.yaml"]))
    assert not settings.warehouse.is_local
    (port,) = SPEC["driver"]["ports"]
    assert str(settings.metrics.listen).endswith(f":{port['containerPort']}")
    assert SPEC["sparkVersion"] == TESTED[0].spark
    assert SPEC["driver"]["terminationGracePeriodSeconds"] >= STOP_SECONDS + 5
    assert sum(parse_size(SPEC["driver"][name]) for name in ("memory", "memoryOverhead")) == 5 * GIB


def test_settings_of_the_whole_application_are_those_of_the_job_s_own_session() -> None:
    assert SPEC["sparkConf"] == {name: _CONF[name] for name in SPEC["sparkConf"]}
    assert not SESSION_CONF.keys() & SPEC["sparkConf"].keys()
    assert all(f"{name}={value}" in README for name, value in SPEC["sparkConf"].items())


def test_the_dockerfile_of_the_readme_makes_the_image_of_the_definition() -> None:
    assert f"FROM apache/spark:{TESTED[0].spark}-" in README
    target = SPEC["mainApplicationFile"].removeprefix("local://")
    assert f"COPY deploy/spark/job.py {target}\n" in README
    assert (SPARK / "job.py").is_file()


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
            assert f'"{jars.spark_coordinates(*TESTED[0])[-1]}"' in text
            compile(text, "session", "exec")
            continue
        own = text.replace("broker:9092", broker.bootstrap_server).replace("/var/lib/streams-groups", str(warehouse))
        exec(own, namespace)  # noqa: S102 - the project's own
    printed = capsys.readouterr().out
    assert "Done: all available records are processed.\n" in printed
    assert f"|{group}" in printed
    assert printed.endswith("Stopped.\n")
    assert not namespace["job"].is_alive()
