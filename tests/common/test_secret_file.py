"""Files of secrets that every user of the machine may read are refused, in one line, wherever they are named."""

from pathlib import Path

import pytest

from streaming_app.config.file import Unresolved, read_yaml
from streaming_app.notify.sink import SinkError
from streaming_app.section import read_secret_file
from tests.support.receivers import make_sink

REASON = "every user may read it, and it holds a secret: chmod o= it, or mount it with defaultMode 0440"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    secret = tmp_path / "secret"
    secret.write_text("https://hooks.example.com/x")
    secret.chmod(0o640)
    return secret


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o440, 0o400])
def test_the_owner_and_the_group_may_read_it(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert read_secret_file(file) == "https://hooks.example.com/x"


def test_a_reference_in_the_configuration_is_refused(file: Path, tmp_path: Path) -> None:
    file.chmod(0o644)
    (tmp_path / "f.yaml").write_text(f"a: ${{file:{file}}}")
    assert read_yaml(tmp_path / "f.yaml") == ({"a": Unresolved(f"cannot read {file}: {REASON}")}, {})


def test_a_secret_of_a_sink_is_refused_also_later(file: Path) -> None:
    sink = make_sink(type="webhook", url_file=str(file))
    file.chmod(0o604)
    with pytest.raises(SinkError) as raised:
        sink.read_secret("url")
    assert str(raised.value) == f"url_file {file}: {REASON}"
