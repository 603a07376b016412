"""`streams-groups web`: its options, and the server that it runs."""

import json
from contextlib import closing
from datetime import datetime, timezone
from http.client import HTTPConnection
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.web.access import Access
from streaming_app.web.page import PageServer
from tests.support.sample_groups import group, replace_group, write_sample
from tests.support.waiting import MINUTES, wait_until


def test_the_server_tells_viewers_of_changes_and_stops_while_they_look(tmp_path: Path) -> None:
    warehouse = write_sample(tmp_path / "w", datetime.now(timezone.utc))
    server = PageServer(warehouse, "default", Access(listen="127.0.0.1:0"))
    server.start()
    with closing(HTTPConnection(server.url.removeprefix("http://").rstrip("/"), timeout=MINUTES)) as viewer:

        def tag() -> str:
            viewer.request("GET", "/changes")
            response = viewer.getresponse()
            assert response.headers["Cache-Control"] == "no-store"
            return str(json.loads(response.read())["tag"])

        assert wait_until(lambda: tag() != "")
        first = tag()
        replace_group(warehouse, group("price-feed", "Empty", datetime.now(timezone.utc), 0))
        assert wait_until(lambda: tag() != first)
        server.stop()
        server._thread.join()


def test_it_reads_brokers_and_the_section_page_from_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Access] = []
    monkeypatch.setattr("streaming_app.web.page.serve", lambda *arguments: served.append(arguments[2]))
    file = tmp_path / "config.yaml"
    file.write_text("page: {allowed_hosts: [A.example]}\n")
    result = CliRunner().invoke(main, ["web", "--config", str(file)])
    assert result.exit_code == 0, result.output
    (settings,) = served
    assert settings.allowed_hosts == {"A.example"}
    monkeypatch.setenv("STREAMS_GROUPS_PAGE__ALLOWED_HOSTS", '["B"]')
    assert CliRunner().invoke(main, ["web", "--config", str(file)]).exit_code == 0
    assert served[1].allowed_hosts == {"B"}
