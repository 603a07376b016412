"""Every locale: an id with letters that it lacks, which any tenant may choose, is printed with escapes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_app.health.verdict import OK, Verdict
from streaming_app.tables.health_tables import HealthRow, HealthTable
from streaming_app.tables.lag_tables import LagTables
from tests.alerts.examples import make_alert
from tests.cli.test_health import save
from tests.support.health_harness import NOW
from tests.support.lag_harness import row
from tests.support.rows import group_row
from tests.support.waiting import MINUTES
from tests.support.warehouses import append, make_warehouse

pytestmark = pytest.mark.slow

GROUP, ESCAPED = "zahlungen-für-支払い-\U0001f600", r"zahlungen-f\u00fcr-\u652f\u6255\u3044-\ud83d\ude00"
COMMANDS = (
    ("list", "--state"),
    *(("describe", "--all-groups", *more) for more in ((), ("--state", "--verbose"))),
    ("lag",),
    *(("sql", f"SELECT '{GROUP}' AS é, * FROM groups", *more) for more in ((), ("--format", "csv"), ("--json",))),
    ("why", GROUP),
    ("history", GROUP),
    ("alerts",),
    ("lag", "--json"),
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    append(path, "groups", group_row(GROUP))
    append(path, "group_events", {"group_id": GROUP, "at": NOW, "kind": "state", "new": GROUP, "offset": 7})
    LagTables(path, "default").replace_lag([row(group_id=GROUP, client_host="größe")])
    HealthTable(path, "default").append([HealthRow(GROUP, Verdict(OK, NOW, NOW, "Ok."), NOW)])
    save(path, make_alert(cluster="default", group_id=GROUP, summary=f"{GROUP} is Down"))
    return path


@pytest.mark.parametrize(
    ("command", "encoding"),
    [*((command, None) for command in COMMANDS), *((command, "iso8859-1") for command in COMMANDS[::5])],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else one or "C",
)
def test_what_a_locale_cannot_show_is_printed_with_escapes(
    warehouse: Path, command: tuple[str, ...], encoding: str | None
) -> None:
    """Seen with LANG=C: one id with an umlaut, and `list`, `describe`, `lag`, `sql` ended with a traceback."""
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "1000"}
    if encoding:
        variables["PYTHONIOENCODING"] = encoding
    ran = subprocess.run(
        [sys.executable, "-m", "streaming_app", *command, "--warehouse", str(warehouse)],
        env={name: value for name, value in os.environ.items() if name not in {"PYTHONUTF8", "LANG"}} | variables,
        capture_output=True,
        timeout=MINUTES,
        check=False,
    )
    assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False), ran.stderr.decode("utf-8", "replace")
    out = ran.stdout.decode(encoding or "utf-8")  # click writes UTF-8 where the locale has ASCII only
    assert any(group_id in out for group_id in (GROUP, ESCAPED, ESCAPED.replace(r"\u00fc", "ü")))
    if "--json" in command:
        assert GROUP in str(json.loads(out))
