"""The files that are generated from the code, outside of the documentation."""

from __future__ import annotations

import pytest
import yaml

from deploy.generate import figures
from deploy.generate.files import ROOT, files

FILES = files()


@pytest.mark.parametrize("file", FILES)
def test_a_generated_file_is_what_the_code_makes_of_it(file: str) -> None:
    assert (ROOT / file).read_text("utf-8") == FILES[file], "run make generate"


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
