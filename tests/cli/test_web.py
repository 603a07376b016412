"""`streams-groups web`: its options, and the server that it runs."""

import base64
import json
from contextlib import closing
from datetime import datetime, timezone
from http.client import HTTPConnection
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.web import live
from streaming_app.web.access import Access, PageError, read_credentials
from streaming_app.web.page import PageServer
from tests.support.sample_groups import group, replace_group, write_sample
from tests.support.waiting import MINUTES


def test_a_file_of_users_is_read_and_its_errors_do_not_show_it(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.touch(0o600)
    file.write_text("# who\n\nada:s3cret:with colon\nBearer t0ken\n")
    user = base64.b64encode(b"ada:s3cret:with colon").decode()
    assert read_credentials(file) == {f"basic {user}", "bearer t0ken"}
    for text in ("", "# nothing\n", "s3cret", ":s3cret", "ada:", "Bearer \n"):
        file.write_text(text)
        with pytest.raises(PageError) as raised:
            read_credentials(file)
        assert "s3cret" not in str(raised.value)
    with pytest.raises(PageError, match="Cannot read"):
        read_credentials(tmp_path / "missing")


def test_the_server_tells_viewers_of_changes_refuses_more_than_it_may_have_and_stops_while_they_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = write_sample(tmp_path / "w", datetime.now(timezone.utc))
    server = PageServer(warehouse, "default", Access(listen="127.0.0.1:0"))
    server.start()

    def connect() -> closing[HTTPConnection]:
        return closing(HTTPConnection(server.url.removeprefix("http://").rstrip("/"), timeout=MINUTES))

    with connect() as viewer, connect() as another:
        viewer.request("GET", "/events")
        response = viewer.getresponse()
        assert response.headers["Content-Type"].startswith("text/event-stream")

        def next_tag() -> str:
            while True:
                line = response.readline()
                assert line, "the stream ended"
                if line.startswith(b"data: "):
                    return str(json.loads(line[6:])["tag"])

        first = next_tag()
        replace_group(warehouse, group("price-feed", "Empty", datetime.now(timezone.utc), 0))
        assert next_tag() != first
        monkeypatch.setattr(live, "MAX_VIEWERS", 1)
        another.request("GET", "/events")
        assert another.getresponse().status == 503
        server.stop()
        server._thread.join()


def test_it_reads_brokers_and_the_section_page_from_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Access] = []
    monkeypatch.setattr("streaming_app.web.page.serve", lambda *arguments: served.append(arguments[2]))
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text("ada:s3cret\n")
    file = tmp_path / "config.yaml"
    file.write_text(f"page: {{base_path: streams, allowed_hosts: [A.example], auth_file: {users}}}\n")
    result = CliRunner().invoke(main, ["web", "--config", str(file)])
    assert result.exit_code == 0, result.output
    (settings,) = served
    assert settings.base_path == "/streams"
    assert settings.allowed_hosts == {"A.example"}
    assert settings.credentials
    monkeypatch.setenv("STREAMS_GROUPS_PAGE__ALLOWED_HOSTS", '["B"]')
    assert CliRunner().invoke(main, ["web", "--config", str(file)]).exit_code == 0
    assert served[1].allowed_hosts == {"B"}
