"""The SQL, the Python and the configuration files of the documents, on a warehouse without rows.

`tests/deploy/test_runbook.py` checks the queries of the runbook.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from streaming_app.config.load import load
from streaming_app.tables.reader import WarehouseReader
from tests.support.documents import DOCS, DOCUMENTS, ROOT, code_blocks, name, program_calls
from tests.support.warehouses import make_warehouse

pytestmark = pytest.mark.slow


TABLES = DOCS / "tables.md"
EXAMPLE_PATH = "/var/lib/streams-groups"
COMMAND_QUERIES = [
    pytest.param(call[1], id=f"{name(document)}: {call[1]}")
    for document in DOCUMENTS
    for call in program_calls(document)
    if call[:1] == ["sql"] and len(call) > 1 and call[1] != "..."
]
BLOCKS = [
    pytest.param(block.text, id=f"{name(document)}: {block.text.splitlines()[0]}")
    for document in (*sorted(DOCS.glob("*.md")), ROOT / "deploy" / "spark" / "README.md")
    for block in code_blocks(document, "sql")
]
PYTHON = [block.text for block in code_blocks(TABLES, "python")]


def is_for_spark(query: str) -> bool:
    """Whether a query uses syntax that only Spark SQL with Delta Lake has."""
    return "TIMESTAMP AS OF" in query or "USING delta" in query


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> WarehouseReader:
    return WarehouseReader(make_warehouse(tmp_path_factory.mktemp("queries")))


@pytest.mark.parametrize("query", [*COMMAND_QUERIES, *(one for one in BLOCKS if not is_for_spark(str(one.values[0])))])
def test_every_query_of_a_command_or_a_block_runs(query: str, reader: WarehouseReader) -> None:
    assert reader.rows(query) == []


@pytest.mark.parametrize("queries", [one for one in BLOCKS if is_for_spark(str(one.values[0]))])
def test_every_statement_that_only_spark_has_parses(queries: str, spark: SparkSession) -> None:
    session: Any = spark._jsparkSession
    for query in filter(str.strip, queries.split(";")):
        session.sessionState().sqlParser().parsePlan(query)


def test_the_python_of_the_page_runs(
    spark: SparkSession, empty_warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session, notebook, others, stream = (code.replace(EXAMPLE_PATH, str(empty_warehouse)) for code in PYTHON)
    compile(session, "session", "exec")  # its first part would start a session of its own, and fetch jars
    _, call, questions = session.partition("streaming_app.open_warehouse(")
    exec("import streaming_app\n" + call + questions, {"spark": spark})  # noqa: S102 - the project's own
    printed = capsys.readouterr().out
    assert "|group_id|state|state_since|" in printed
    assert "|member_id" in printed
    assert "NULL" not in printed  # every column of the view has a comment
    namespace: dict[str, Any] = {}
    exec(notebook, namespace)  # noqa: S102 - the project's own
    assert list(namespace["frame"].columns) == ["group_id", "state", "state_since"]
    exec(others, namespace)  # noqa: S102 - the project's own
    assert "count_star()" in capsys.readouterr().out
    namespace["spark"] = spark
    exec(stream, namespace)  # noqa: S102 - the project's own
    assert namespace["events"].isStreaming


EXAMPLES = [
    pytest.param(block.text, id=f"{name(document)}: {block.text.splitlines()[0]}")
    for document in DOCUMENTS
    for block in code_blocks(document, "yaml")
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_valid_configuration_file(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "json://hooks.example.com/1"
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text(url, "utf-8")
    monkeypatch.setenv("CHAT_URL", url)
    monkeypatch.setenv("SLACK_TOKENS", "T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ")
    monkeypatch.setenv("MAIL_PASSWORD", "secret")
    monkeypatch.setenv("TELEGRAM_URL", "tgram://123456789:abcdefg/12315544")
    monkeypatch.setenv("PAGERDUTY_KEY", "key")
    monkeypatch.setenv("OPSGENIE_KEY", "key")
    file = tmp_path / "streams-groups.yaml"
    file.write_text(example.replace("/run/secrets/chat-url", str(secret)), "utf-8")
    settings = load(file).settings
    assert settings.model_fields_set == set(yaml.safe_load(example))
