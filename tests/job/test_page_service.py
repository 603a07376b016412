"""The page of the job: it is served from a thread of its own, and no failure of it ends the job."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from streaming_app.config.settings import JobConfig
from streaming_app.job.page_service import PageService, make_page_service
from streaming_app.job.service import Services
from tests.waiting import wait_until
from tests.warehouses import make_warehouse


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def config(warehouse: Path, listen: str | None, **page: object) -> JobConfig:
    return JobConfig(bootstrap_server="127.0.0.1:1", warehouse=warehouse, page={"listen": listen, **page})


@contextmanager
def serving_page(config: JobConfig, report: Callable[[str], None]) -> Iterator[PageService]:
    with closing(Services()) as services:
        service = make_page_service(config, report)
        services.start(service)
        yield service
    assert not service.health.is_running


def answer(url: str) -> str:
    address = urlsplit(url)
    with closing(http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)) as connection:
        connection.request("GET", address.path)
        return connection.getresponse().read().decode()


def test_the_job_serves_the_page_until_it_ends(tmp_path: Path) -> None:
    make_warehouse(tmp_path / "w")
    lines: list[str] = []
    address = free_address()
    with serving_page(config(tmp_path / "w", address), lines.append):
        assert wait_until(lambda: bool(lines), seconds=20)
        assert lines == [f"The page is at http://{address}/"]
        assert "There is no group in this cluster yet" in answer(f"http://{address}/")


def test_an_address_in_use_is_one_line_and_is_tried_again(tmp_path: Path) -> None:
    lines: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        service = make_page_service(config(tmp_path, address), lines.append, retry_seconds=0.05)
        service.start()
        assert wait_until(lambda: service.health.failures > 2, seconds=20)
        assert len(lines) == 1
        assert lines[0].startswith(f"page: Cannot serve the page at {address}: Address already in use; choose another")
    assert wait_until(lambda: len(lines) > 1, seconds=20)
    assert lines[1] == f"The page is at http://{address}/"
    service.close()


def test_a_file_of_users_that_cannot_be_read_does_not_leave_the_page_open_to_all(tmp_path: Path) -> None:
    lines: list[str] = []
    address = free_address()
    with serving_page(config(tmp_path, address, auth_file=tmp_path / "none"), lines.append):
        assert wait_until(lambda: bool(lines), seconds=20)
        with pytest.raises(OSError, match="refused"):
            answer(f"http://{address}/")
    assert lines == [
        f"page: Cannot read {tmp_path / 'none'}: No such file or directory; this is tried again every 30 s"
    ]


class Failing:
    """A server that ends with an exception."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def lines(self) -> Iterator[str]:
        yield "serving"

    def run(self) -> None:
        raise self.error

    def stop(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("error", [SystemExit(3), MemoryError("no\nmemory"), RuntimeError("x")])
def test_a_server_that_fails_is_started_again(error: BaseException) -> None:
    lines: list[str] = []
    service = PageService(lambda: Failing(error), lines.append, retry_seconds=0.01)
    service.start()
    assert wait_until(lambda: lines.count("serving") > 2, seconds=10)
    service.close()
    problems = {line for line in lines if line != "serving"}
    assert len(problems) == 1
    assert "\n" not in problems.pop()
