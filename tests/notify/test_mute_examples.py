"""The examples of mutes in docs/alerts.md: the commands, as they are there. `tests/docs` loads its configuration."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.notify.mutes import Mutes
from streaming_app.tables.alerts_table import AlertsTable
from tests.alerts.examples import make_alert
from tests.support.documents import DOCS, program_calls
from tests.support.rows import group_row
from tests.support.warehouses import append, make_warehouse

PAGE = DOCS / "alerts.md"
GROUPS = ("payments-cards", "payments-fees", "orders")


def test_the_commands_of_the_page_mute_the_groups_and_end_the_mute(tmp_path: Path) -> None:
    begin, end = (call for call in program_calls(PAGE) if call[:2] == ["alerts", "mute"] and "--for" in call)
    make_warehouse(tmp_path)
    append(tmp_path, "groups", *map(group_row, GROUPS))
    alerts = [make_alert(group_id=group, cluster="default") for group in GROUPS]
    AlertsTable(tmp_path, "default").save(alerts)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, "--warehouse", str(tmp_path)])
        assert result.exit_code == 0, result.output
        return result.output

    def muted() -> list[str | None]:
        mutes = Mutes(tmp_path, "default")  # as the job has them at its next evaluation
        mutes.refresh()
        return [alert.group_id for alert in alerts if mutes.find(alert)]

    assert "2 of 3 groups match, 2 of 3 firing alerts are muted" in run(*begin)
    assert muted() == ["payments-cards", "payments-fees"]
    assert "payments-.*: deployment" in run("alerts")
    assert run(*end) == "payments-.* is not muted any more.\n"
    assert muted() == []
