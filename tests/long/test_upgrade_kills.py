"""An upgrade is killed after each of its writes: `make test` tries a third of them."""

from pathlib import Path

import pytest

from tests.upgrade import test_upgrade
from tests.upgrade.test_upgrade import check_kill, write_numbers

recorded = test_upgrade.recorded


@pytest.mark.parametrize("after", write_numbers()[0])
def test_it_goes_on_at_the_next_start(
    after: int, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_kill(after, recorded, tmp_path / "warehouse", monkeypatch)
