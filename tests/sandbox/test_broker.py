from pathlib import Path

import pytest

from streaming_app.errors import SetupError
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.child_process import reserve_port

pytestmark = pytest.mark.broker


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with reserve_port() as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=rf"^Port {port} on 127.0.0.1 is not available .*: choose another one$"):
            LocalBroker(tmp_path, port=port).start()


def test_a_broker_with_an_invalid_configuration_is_an_error_with_the_reason_and_its_log_file(tmp_path: Path) -> None:
    own = LocalBroker(tmp_path, properties={"num.io.threads": "0"})
    with pytest.raises(SetupError) as raised:
        own.start()
    line = str(raised.value)
    assert "num.io.threads" in line
    assert str(own.log_file) in line
    assert "\n" not in line
    assert own.pid is None
