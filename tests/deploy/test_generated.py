"""What generates files from the code, and `--check`, which finds those that are out of date."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deploy.generate import figures
from deploy.generate.output import finish


def test_a_check_names_each_file_that_is_out_of_date_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"same": "a\n", "other": "b\n", "missing": "c\n"}
    for name in ("same", "other"):
        (tmp_path / name).write_text("a\n", "utf-8")
    assert finish(tmp_path, texts, {"same": 1, "other": 0}, ["--check"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "other is out of date: run make generate",
        "missing is out of date: run make generate",
        "other has 1 lines, and may have 0",
    ]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other", "same"]
    assert finish(tmp_path, texts, {}, []) == 0
    assert finish(tmp_path, texts, {}, ["--check"]) == 0


def test_a_figure_is_written_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = figures.FIGURES["GiB of memory"]
    monkeypatch.setattr(figures, "FIGURES", {"GiB of memory": memory._replace(value="7")})
    written = figures.files()
    assert set(written) == set(memory.places)
    assert "\nMemoryMax=7G\n" in written["deploy/systemd/streams-groups.service"]
    values = yaml.safe_load(written["deploy/charts/streams-groups/values.yaml"])
    assert values["resources"]["limits"] == {"memory": "7Gi"}
    assert values["resources"]["requests"]["memory"] == "3Gi"


def test_a_file_that_no_longer_has_a_figure_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {"ports": figures.Figure("1", {"deploy/compose.yaml": ("MemoryMax=@G",)})}
    monkeypatch.setattr(figures, "FIGURES", lost)
    with pytest.raises(ValueError, match=r"^deploy/compose\.yaml has no 'MemoryMax=@G', for the ports$"):
        figures.files()
