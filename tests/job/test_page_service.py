"""The page of the job: it is served by a child process, which ends with the job; no failure of it ends the job."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaProducer

from offsets_decoder import encode
from streaming_app.config.routing import NamedIntervals, RouteSettings, SilenceSettings
from streaming_app.config.settings import JobConfig
from streaming_app.job.page_service import PageService, make_page_service
from streaming_app.job.service import Services
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from tests.job.running_job import running_job
from tests.waiting import wait_until
from tests.warehouses import append, make_warehouse
from tests.web.http_client import request
from tests.web.sample import group

pytestmark = pytest.mark.slow


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
    """Return the page; an empty text if nobody listens."""
    with suppress(ConnectionError):
        return request(url, "/")[2]
    return ""


def has_failed_again(service: PageService, failures: int) -> bool:
    return service.health.failures > failures


def test_the_job_serves_the_page_until_it_ends(tmp_path: Path) -> None:
    make_warehouse(tmp_path / "w")
    lines: list[str] = []
    address = free_address()
    with serving_page(config(tmp_path / "w", address), lines.append) as service:
        assert wait_until(lambda: bool(lines))
        assert lines == [f"The page is at http://{address}/"]
        assert "There is no group in this cluster yet" in answer(f"http://{address}")
        pid = service.pid
        assert pid
    assert not Path(f"/proc/{pid}").exists()


def test_the_page_of_the_job_says_which_team_owns_a_group(tmp_path: Path) -> None:
    make_warehouse(tmp_path / "w")
    append(
        tmp_path / "w",
        "groups",
        *(group(one, "Stable", datetime.now(timezone.utc), 1) for one in ("payments", "orders")),
    )
    lines: list[str] = []
    address = free_address()
    routes = [{"groups": "pay.*", "team": "money", "sinks": [], "continue": True}]
    with serving_page(config(tmp_path / "w", address).model_copy(update={"routes": _routes(routes)}), lines.append):
        assert wait_until(lambda: bool(lines))
        assert answer(f"http://{address}").count("team:money</bdi>") == 1
        assert "team:money</bdi>" in request(f"http://{address}", "/group?id=payments")[2]


def test_the_page_of_the_job_has_the_silences_of_the_configuration(tmp_path: Path) -> None:
    make_warehouse(tmp_path / "w")
    append(tmp_path / "w", "groups", group("payments", "Stable", datetime.now(timezone.utc), 1))
    lines: list[str] = []
    address = free_address()
    silences = SilenceSettings.model_validate(
        {"groups": "pay.*", "mute_time_intervals": ["always"], "comment": "not yet in use"}
    )
    always = NamedIntervals.model_validate({"name": "always", "time_intervals": [{"months": ["january:12"]}]})
    changes = {"silences": (silences,), "time_intervals": (always,)}
    with serving_page(config(tmp_path / "w", address).model_copy(update=changes), lines.append):
        assert wait_until(lambda: bool(lines))
        text = request(f"http://{address}", "/group?id=payments")[2]
        what = "alerts silenced at times of the configuration (silences[0])"
        assert re.search(f"{re.escape(what)} until [^<]*: not yet in use<", text)


def _routes(given: list[dict[str, object]]) -> tuple[RouteSettings, ...]:
    return tuple(RouteSettings.model_validate(one) for one in given)


def test_an_address_in_use_is_one_line_and_is_tried_again(tmp_path: Path) -> None:
    lines: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        service = make_page_service(config(tmp_path, address), lines.append, retry_seconds=0.05)
        service.start()
        assert wait_until(lambda: service.health.failures > 2)
        assert len(lines) == 1
        assert lines[0].startswith(f"page: Cannot serve the page at {address}: Address already in use; choose another")
    assert wait_until(lambda: len(lines) > 1)
    assert lines[1] == f"The page is at http://{address}/"
    service.close()


def test_a_file_of_users_that_cannot_be_read_does_not_leave_the_page_open_to_all(tmp_path: Path) -> None:
    lines: list[str] = []
    address = free_address()
    with serving_page(config(tmp_path, address, auth_file=tmp_path / "none"), lines.append):
        assert wait_until(lambda: bool(lines))
        assert answer(f"http://{address}") == ""
    assert lines == [
        f"page: Cannot read {tmp_path / 'none'}: No such file or directory; this is tried again every 30 s"
    ]


def test_a_page_whose_process_is_killed_is_back_and_the_job_says_that_once(tmp_path: Path) -> None:
    lines: list[str] = []
    address = free_address()
    with serving_page(config(tmp_path / "w", address), lines.append) as service:
        assert wait_until(lambda: bool(lines))
        for _ in range(2):
            pid, failures = service.pid, service.health.failures
            assert pid
            os.kill(pid, signal.SIGKILL)
            assert wait_until(partial(has_failed_again, service, failures))
            assert wait_until(lambda: service.health.failure is None)
            assert "No streams-groups warehouse" in answer(f"http://{address}")
    assert lines == [
        f"The page is at http://{address}/",
        "page: its process was ended by SIGKILL; it is started again",
    ]


def test_signals_for_the_whole_group_of_processes_do_not_end_the_page_before_the_job(tmp_path: Path) -> None:
    lines: list[str] = []
    address = free_address()
    with serving_page(config(tmp_path / "w", address), lines.append) as service:
        assert wait_until(lambda: bool(lines))
        pid = service.pid
        assert pid
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        assert answer(f"http://{address}")
        assert service.pid == pid
    assert len(lines) == 1


def test_the_page_ends_with_a_job_that_is_killed(tmp_path: Path) -> None:
    address = free_address()
    program = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from tests.job.test_page_service import config, make_page_service\n"
        "make_page_service(config(Path(sys.argv[1]), sys.argv[2]), lambda line: print(line, flush=True)).start()\n"
        "threading.Event().wait()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "w"), address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout
        assert job.stdout.readline() == f"The page is at http://{address}/\n"
        assert answer(f"http://{address}")
        job.kill()
    assert wait_until(lambda: not answer(f"http://{address}"))


def test_no_secret_is_in_the_command_line_or_what_the_process_is_told(tmp_path: Path) -> None:
    users, properties = tmp_path / "users", tmp_path / "client.properties"
    users.touch(0o600)
    users.write_text("ada:s3cret\n")
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
        'password="s3cret";\n'
    )
    job = config(tmp_path / "w", free_address(), auth_file=users).model_copy(update={"command_config": properties})
    lines: list[str] = []
    with serving_page(job, lines.append) as service:
        assert wait_until(lambda: bool(lines))
        assert request(f"http://{job.page.listen}", "/")[0] == 401
        assert "s3cret" not in Path(f"/proc/{service.pid}/cmdline").read_text("utf-8")
        assert "s3cret" not in Path(f"/proc/{service.pid}/environ").read_text("utf-8")
        assert "s3cret" not in service._served.model_dump_json()


def test_modules_of_the_working_directory_do_not_stand_for_those_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('a module of the user')\n")
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    address = free_address()
    with serving_page(config(tmp_path / "w", address), lines.append):
        assert wait_until(lambda: bool(lines))
    assert lines == [f"The page is at http://{address}/"]


def running(program: str, report: Callable[[str], None], retry_seconds: float = 0.01) -> PageService:
    """Return a service whose child runs a Python program instead of the page."""
    command = [sys.executable, "-c", program]
    served = make_page_service(config(Path("w"), "127.0.0.1:0"), print)._served
    return PageService(served, report, retry_seconds=retry_seconds, command=command)


def test_a_process_that_ends_again_and_again_is_started_again_and_reported_once() -> None:
    lines: list[str] = []
    with closing(running("print('says: serving'); raise SystemExit(3)", lines.append)) as service:
        service.start()
        assert wait_until(lambda: service.health.failures > 2)
    assert lines == ["serving", "page: its process ended with exit code 3; it is started again"]


def test_what_else_the_process_prints_is_reported_as_lines_of_the_page() -> None:
    lines: list[str] = []
    program = "import sys; print('a library warns\\x1b'); raise MemoryError('no memory')"
    with closing(running(program, lines.append)) as service:
        service.start()
        assert wait_until(lambda: service.health.failures > 1)
    assert lines[0].startswith("page: ")
    assert "page: a library warns\\x1b" in lines
    assert "page: MemoryError: no memory" in lines
    assert lines.count("page: its process ended with exit code 1; this is tried again every 0 s") == 1


def test_pauses_between_starts_grow_until_the_page_was_served_for_a_while() -> None:
    lines: list[str] = []
    service = running("print('says: serving'); raise SystemExit(3)", lines.append, retry_seconds=30.0)
    assert service.pause(100.0) == 30.0
    service.attempt()
    assert lines[0] == "serving"
    assert [service.pause(1.0) for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert service.pause(100.0) == 0.5


def test_a_process_that_does_not_end_is_killed() -> None:
    lines: list[str] = []
    program = "import time; print('says: serving', flush=True); time.sleep(600)"
    service = running(program, lines.append)
    service.start()
    assert wait_until(lambda: bool(lines))
    pid = service.pid
    service.close()
    assert wait_until(lambda: not service.health.is_running)
    assert not Path(f"/proc/{pid}").exists()
    assert lines == ["serving"]


def test_batches_go_on_while_the_page_of_a_job_is_killed_and_comes_back_and_it_ends_with_the_job(
    broker: Broker,
    client: StreamsGroupClient,
    unique: Callable[[str], str],
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
) -> None:
    warehouse, topic, address = tmp_path / "w", unique("offsets"), free_address()
    create_warehouse(warehouse)
    client.create_topic(topic, 1)
    (tmp_path / "config.yaml").write_text(f"page: {{listen: {address}}}\noffsets: {{enabled: false}}\n")
    options = ("--topic", topic, "--trigger", 0, "--config", tmp_path / "config.yaml")

    def create_group(name: str) -> None:
        key, value = encode(17, {"group_id": name}, {"epoch": 2})
        with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_server)) as producer:
            producer.send(topic, key=key, value=value)

    def shows(name: str) -> bool:
        return f">{name}<" in answer(f"http://{address}")

    with running_job(broker.bootstrap_server, warehouse, *options) as job:
        assert job.says(f"The page is at http://{address}/")
        create_group("before")
        assert wait_until(lambda: shows("before"), seconds=60)
        page = page_process(job.process.pid)
        os.kill(page, signal.SIGKILL)
        create_group("after")
        assert wait_until(lambda: shows("after"), seconds=60)
        assert job.says("page: its process was ended by SIGKILL; it is started again")
        assert not [line for line in job.lines if "fail" in line]
        page = page_process(job.process.pid)
        job.process.kill()
        assert wait_until(lambda: not Path(f"/proc/{page}").exists())


def page_process(job: int) -> int:
    """Return the process id of the child that serves the page."""
    pids = [
        int(pid) for file in Path(f"/proc/{job}/task").glob("*/children") for pid in file.read_text("utf-8").split()
    ]
    return next(pid for pid in pids if "page_child" in Path(f"/proc/{pid}/cmdline").read_text("utf-8"))


def test_the_page_can_take_neither_the_memory_nor_the_descriptors_of_the_job(tmp_path: Path) -> None:
    settings = config(make_warehouse(tmp_path / "warehouse"), free_address(), memory="1g")
    with serving_page(settings, lambda _line: None) as service:
        assert wait_until(lambda: "html" in answer(f"http://{settings.page.listen}"))
        limits = Path(f"/proc/{service.pid}/limits").read_text()
        assert re.search(rf"Max data size +{1 << 30} +{1 << 30} ", limits)
        assert re.search(r"Max open files +1024 +1024 ", limits)
        assert int(Path(f"/proc/{service.pid}/oom_score_adj").read_text()) == 800
