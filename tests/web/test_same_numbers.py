"""Page, commands and SQL show the same number of the same thing."""

import html
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from streaming_app.queries.health import deployment_lines
from streaming_app.tables.reader import WarehouseReader
from streaming_app.text import duration, utc
from streaming_app.web.access import Access
from streaming_app.web.page import Page
from streaming_app.web.page_snapshot import SnapshotSource
from tests.cli.commands import as_json
from tests.support.sample_groups import NOW, clock
from tests.support.warehouses import append

pytestmark = pytest.mark.slow
Row = dict[str, Any]
NOTHING = "\N{EN DASH}"


@pytest.fixture(params=["sample", "unknown and at least"])
def warehouse(request: pytest.FixtureRequest, sample: Path) -> Path:
    """The sample, also with partitions whose lag is not known, or known to be at least something."""
    if request.param != "sample":
        append(sample, "lag", *_more())
    return sample


def _more() -> list[Row]:
    def row(group_id: str, topic: str, partition: int, lag: int | None, status: str, **columns: Any) -> Row:
        names = {"cluster": "default", "group_id": group_id, "topic": topic, "partition": partition, "observed_at": NOW}
        offsets = {
            "committed_offset": None if lag is None else 5,
            "log_end_offset": 9,
            "lag": lag,
            "offset_status": status,
        }
        return {**names, **offsets, "lag_seconds_is_lower_bound": False, **columns}

    return [
        *(row("inventory-sync", "no-commit", number, None, "UNKNOWN") for number in (1, 0)),
        row("price-feed", "read", 0, 10, "OK", lag_seconds=100.0),
        row("price-feed", "read", 1, 10, "OK", lag_seconds=50.0, lag_seconds_is_lower_bound=True),
        row("payments-enrichment", "read", 0, 10, "OK", lag_seconds=100.0),
        row("payments-enrichment", "read", 1, 490, "UNKNOWN", lag_seconds_is_lower_bound=None),
        row("price-feed", "left", 0, 7_000, "LEFT_OVER", lag_seconds=9_000.0),
        row("ledger-reconciler", "a", 0, 4, "OK"),
        row("ledger-reconciler", "a", 1, None, "UNKNOWN", committed_offset=5),
        row("ledger-reconciler", "b", 0, 4, "RECREATED"),
        row("ledger-reconciler", "b", 1, 4, "WAITS", lag_seconds=0.0),
    ]


def _text(part: str) -> str:
    return " ".join(re.sub(r"<title>.*?</title>|<[^>]*>", " ", part).split())


def _cells(client: TestClient) -> dict[str, list[str]]:
    """Return the texts of the cells of each group in the overview of the page."""
    found = {}
    for line in client.get("/?type=streams&sort=name").text.split("<tr id=")[1:]:
        name = re.search(r'<bdi class="name">(.*?)</bdi>', line)
        assert name
        cells = re.findall(r"<td[^>]*>(.*?)</td>", line, re.DOTALL)
        found[html.unescape(name[1])] = [_text(one) for one in cells]
    return found


def test_page_commands_and_sql_say_the_same(warehouse: Path) -> None:
    reader = WarehouseReader(warehouse)
    rows = reader.rows("SELECT * FROM group_overview WHERE cluster = 'default' AND state <> 'Dead'")
    shell = {row["group_id"]: row for row in as_json(warehouse, "lag", "--by", "group")}
    firing = Counter(row["group_id"] for row in as_json(warehouse, "alerts"))
    deployed = deployment_lines(reader, "default", [row["group_id"] for row in rows])
    listed = {row["group"]: row for row in as_json(warehouse, "list", "--type", "all", "--state", "--health")}
    page = Page(SnapshotSource(warehouse, "default", clock), Access(), clock)
    client = TestClient(page.app, base_url="http://localhost")
    cells = _cells(client)
    assert len(rows) == len(listed)
    for row in rows:
        group_id = row["group_id"]
        same = {"state": "state", "verdict": "health", "pending_verdict": "pending", "protocol_type": "protocol"}
        assert {name: row[name] for name in same} == {name: listed[group_id][one] for name, one in same.items()}
        assert row["alerts"] == firing[group_id]
        if row["deployed_at"] is None:
            assert group_id not in deployed
        else:
            assert f" at {utc(row['deployed_at'])}," in deployed[group_id]
        is_plain = group_id.isascii() and group_id.isprintable() and 0 < len(group_id) < 60
        if is_plain and row["group_type"] == "streams":
            verdict, _, _, state, lag, seconds, members, tasks, *_ = cells[group_id]
            assert (verdict.split(" ")[0], state) == (row["verdict"], row["state"])
            assert members.split(" ")[0] == f"{row['member_count']:,}"
            assert tasks.split(" ")[0] == f"{row['tasks']:,}"
            at_least = "≥ " if row["unknown_partitions"] else ""
            assert lag.startswith(NOTHING if row["lag"] is None else f"{at_least}{row['lag']:,}"), (group_id, lag)
            at_least = "≥ " if row["is_lower_bound"] else ""
            assert seconds == (NOTHING if row["lag_seconds"] is None else at_least + duration(row["lag_seconds"]))
        if row["partitions"] is None:
            assert group_id not in shell
            continue
        names = ("lag", "lag_seconds", "is_lower_bound", "offset_status", "partitions", "unknown_partitions")
        values = [row[name] for name in names]
        known = {**shell[group_id], "is_lower_bound": shell[group_id]["lag_seconds_is_lower_bound"]}
        assert [known[name] for name in names] == values
        tile = re.search(r"<dt>Lag</dt><dd>(.*?)</dd>", client.get(f"/group?id={group_id}").text, re.DOTALL)
        assert tile
        at_least = "≥ " if row["unknown_partitions"] else ""
        assert _text(tile[1]).startswith(NOTHING if row["lag"] is None else f"{at_least}{row['lag']:,} offsets")
