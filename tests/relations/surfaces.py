"""What each surface says of the groups of a warehouse at an instant: list, `why`, `alerts`, the page, and SQL.

The rows are written as the job writes them. Each surface is asked as a user asks it, and gives a record of the same
shape for each group. So relations compare records, and know nothing of templates or columns.
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner
from starlette.testclient import TestClient

from streaming_app.alerts.alert import Alert, severity_rank
from streaming_app.cli.main import main
from streaming_app.health.verdict import Verdict
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.health_tables import HealthRow, HealthTable
from streaming_app.tables.reader import WarehouseReader
from streaming_app.web.access import Access
from streaming_app.web.page import Page
from streaming_app.web.page_snapshot import SnapshotSource
from tests.support.rows import group_row
from tests.support.warehouses import append

CLUSTER = "default"


class Said(NamedTuple):
    """What a surface says of a group; None where it does not say that."""

    verdict: str | None
    severity: str | None
    since: str | None
    alert_severity: str | None


def write(warehouse: Path, verdicts: Mapping[str, Verdict], alerts: Iterable[Alert]) -> None:
    """Write groups, their verdicts and their alerts."""
    append(warehouse, "groups", *(group_row(one) for one in verdicts))
    HealthTable(warehouse, CLUSTER).append([HealthRow(one, verdict, verdict.at) for one, verdict in verdicts.items()])
    AlertsTable(warehouse, CLUSTER).save(alerts)


def ask(warehouse: Path, *arguments: str) -> Any:
    """Return what a command prints as JSON."""
    ran = CliRunner().invoke(main, [*arguments, "--json", "--warehouse", str(warehouse)])
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


def expected(verdicts: Mapping[str, Verdict], alerts: Iterable[Alert]) -> dict[str, Said]:
    """Return what every surface has to say."""
    worst: dict[str | None, str] = {}
    for one in alerts:
        worst[one.group_id] = min(worst.get(one.group_id, one.severity), one.severity, key=severity_rank)
    return {
        group_id: Said(one.verdict, one.severity, _iso(one.since), worst.get(group_id))
        for group_id, one in verdicts.items()
    }


def by_sql(warehouse: Path, _now: datetime) -> dict[str, Said]:
    rows = WarehouseReader(warehouse).rows("SELECT * FROM group_overview")
    return {
        one["group_id"]: Said(one["verdict"], one["severity"], _iso(one["since"]), one["alert_severity"])
        for one in rows
    }


def by_list(warehouse: Path, _now: datetime) -> dict[str, Said]:
    rows = ask(warehouse, "list", "--health")
    return {one["group"]: Said(one["health"], None, None, None) for one in rows}


def by_why(warehouse: Path, _now: datetime) -> dict[str, Said]:
    groups = [one["group"] for one in ask(warehouse, "list", "--health")]
    found = {group_id: ask(warehouse, "why", group_id) for group_id in groups}
    return {
        group_id: Said(one["verdict"], one["severity"], one["since"], one["alert"] and one["alert"]["severity"])
        for group_id, one in found.items()
    }


def by_page(warehouse: Path, now: datetime) -> dict[str, Said]:
    page = Page(SnapshotSource(warehouse, CLUSTER, lambda: now), Access(), lambda: now)
    text = TestClient(page.app, base_url="http://localhost").get("/?sort=name").text
    return dict(_rows(text))


def _rows(text: str) -> Iterator[tuple[str, Said]]:
    for row in text.split("<tr id=")[1:]:
        name, level = re.search(r'<bdi class="name">(.*?)</bdi>', row), re.match(r'"[^"]*" class="trouble-(\w+)"', row)
        cell = re.search(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        assert name
        assert cell
        verdict = " ".join(re.sub(r"<[^>]*>", " ", cell[1]).split()).split(" ")[0]
        yield html.unescape(name[1]), Said(verdict, None, None, level and level[1])


SURFACES: Mapping[str, Callable[[Path, datetime], Mapping[str, Said]]] = {
    "sql": by_sql,
    "list": by_list,
    "why": by_why,
    "page": by_page,
}


def check(warehouse: Path, verdicts: Mapping[str, Verdict], alerts: list[Alert], now: datetime) -> None:
    """Assert that every surface says what the verdicts and alerts are, and `alerts` which alerts are open."""
    should = expected(verdicts, alerts)
    for name, surface in SURFACES.items():
        said = surface(warehouse, now)
        assert said.keys() == should.keys(), name
        for group_id, one in said.items():
            of_page = should[group_id]
            if name == "page":  # the level of a row is that of its alerts, else of its verdict
                of_page = of_page._replace(alert_severity=of_page.alert_severity or of_page.severity)
            wrong = [(a, b) for a, b in zip(one, of_page, strict=True) if a is not None and a != b]
            assert not wrong, (name, group_id, wrong, now)
            assert one.alert_severity == of_page.alert_severity or name in {"list", "why"}, (name, group_id)
    found = {(one["group_id"], one["rule"], one["severity"], one["since"]) for one in ask(warehouse, "alerts")}
    assert found == {(one.group_id, one.rule, one.severity, _iso(one.since)) for one in alerts}, now


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
