"""What a service of the job does with the errors of its ticks, and how it ends, whatever a tick does."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streaming_app.job.service import Service, Services, WakeableEvent
from tests.support.waiting import wait_until


class Ticks(Service):
    """Calls what the test gives it, and counts."""

    poll_seconds = 0.01
    close_seconds = 600.0

    def __init__(self, do: Callable[[], Any] = lambda: None, **settings: Any) -> None:
        self.lines: list[str] = []
        super().__init__("ticks", self.lines.append, **{"interval": 0.01, **settings})
        self.do, self.count, self.ready, self.left = do, 0, True, False

    def tick(self) -> None:
        self.count += 1
        self.do()

    def is_ready(self) -> bool:
        return self.ready

    def on_end(self) -> None:
        self.left = True

    def next_ticks(self, number: int = 2) -> bool:
        wanted = self.count + number
        return wait_until(lambda: self.count >= wanted)


@pytest.fixture
def running() -> Iterator[Callable[[Ticks], Ticks]]:
    """Start a service that ends with the test."""
    services = Services()

    def start(service: Ticks) -> Ticks:
        services.start(service)
        return service

    yield start
    services.close()


def failing(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


Start = Callable[[Ticks], Ticks]


@pytest.mark.parametrize("error", [OSError, SystemExit], ids=lambda error: error.__name__)
def test_whatever_a_tick_raises_is_one_line_until_one_succeeds_or_fails_otherwise(
    running: Start, error: Callable[[str], BaseException]
) -> None:
    service = running(Ticks(failing(error("broken"))))
    assert service.next_ticks(3)
    (line,) = service.lines
    assert line.startswith("ticks: ")
    assert line.endswith("broken")
    assert service.is_running
    assert service.failures >= 2
    service.do = failing(OSError("otherwise"))
    assert wait_until(lambda: len(service.lines) == 2)
    service.do = lambda: None
    assert service.next_ticks()
    service.do = failing(error("broken"))
    assert wait_until(lambda: len(service.lines) == 3)
    assert service.lines == [line, "ticks: otherwise", line]


def test_no_tick_begins_before_the_service_is_ready_and_that_question_may_fail_too(running: Start) -> None:
    asked = threading.Event()
    service = Ticks()
    service.ready = False
    service.is_ready = lambda: asked.set() or service.ready
    running(service)
    assert asked.wait(600)
    assert service.count == 0
    service.ready = True
    assert service.next_ticks()
    service.is_ready = failing(OSError("broken"))
    assert wait_until(lambda: service.failures > 1)
    assert service.lines == ["ticks: broken"]


def test_a_service_without_an_interval_makes_one_tick_and_ends_by_itself(running: Start) -> None:
    service = running(Ticks(failing(OSError("broken")), interval=None))
    assert wait_until(lambda: not service.is_running)
    assert (service.count, service.lines, service.left) == (1, ["ticks: broken"], True)
    assert service.close()


def test_a_thread_that_ends_by_a_defect_is_noticed(running: Start) -> None:
    service = Ticks()
    service.pause = failing(TypeError("a defect"))
    running(service)
    assert wait_until(lambda: bool(service.lines) and not service.is_running)
    assert service.lines == ["ticks: TypeError: a defect"]


def test_the_error_of_a_job_that_ends_is_none(running: Start) -> None:
    service = Ticks()

    def fail_at_the_end() -> None:
        service.stopping.wait(600)
        raise OSError("the connection was closed")

    service.do = fail_at_the_end
    running(service)
    assert wait_until(lambda: service.count == 1)
    assert service.close()
    assert (service.lines, service.failures) == ([], 0)


def test_all_are_asked_to_end_before_one_is_waited_for_and_a_tick_that_hangs_is_left_behind() -> None:
    services, release = Services(), threading.Event()
    first, second, third = Ticks(), Ticks(release.wait), Ticks()
    second.close_seconds = 0.1
    first.name, second.name, third.name = "first", "second", "third"
    try:
        for service in (first, second, third):
            services.start(service)
        assert wait_until(lambda: second.count == 1)
        assert services.close() == ["second"]
        assert [one.is_running for one in (first, second, third)] == [False, True, False]
        assert services.close() == []
    finally:
        release.set()
    assert second.join(600)


def test_a_service_that_is_woken_makes_its_next_tick_at_once() -> None:
    wakeable, ticks = WakeableEvent(), threading.Semaphore(0)

    class Woken(Service):
        def tick(self) -> None:
            ticks.release()

    service = Woken("woken", print, interval=600, stopping=wakeable)
    service.start()
    assert ticks.acquire(timeout=600)
    wakeable.wake()
    assert ticks.acquire(timeout=600)
    assert service.close()
    assert not ticks.acquire(blocking=False)
