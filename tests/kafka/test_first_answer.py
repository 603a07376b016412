"""In which order brokers are asked, and which answer counts: by a network whose clock the test moves."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaTimeoutError
from kafka.future import Future

from streaming_app.kafka.first_answer import _NEXT_SECONDS, BrokerConnections


class Network:
    """Makes each call of `call_later` once the clock is past its time."""

    def __init__(self) -> None:
        self.now, self._due = 0.0, list[tuple[float, Callable[[], None]]]()

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self._due.append((self.now + seconds, call))

    def move(self, seconds: float) -> None:
        self.now += seconds
        due = [call for at, call in self._due if at <= self.now]
        self._due = [(at, call) for at, call in self._due if at > self.now]
        for call in due:
            call()


class Brokers:
    """Three brokers that are asked; each answers when the test says so."""

    def __init__(self) -> None:
        self.network, self.asked = Network(), list[Future]()
        connections = SimpleNamespace(_net=self.network)
        self.answer = BrokerConnections._first(connections, [self._ask] * 3)

    def _ask(self) -> Future:
        self.asked.append(Future())
        return self.asked[-1]


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_the_next_broker_is_asked_after_a_moment_without_an_answer_and_the_first_answer_counts(
    brokers: Brokers,
) -> None:
    assert len(brokers.asked) == 1
    brokers.network.move(_NEXT_SECONDS / 2)
    assert len(brokers.asked) == 1
    brokers.network.move(_NEXT_SECONDS / 2)
    assert len(brokers.asked) == 2
    brokers.asked[1].success("of the second")
    assert (brokers.answer.is_done, brokers.answer.value) == (True, "of the second")
    brokers.network.move(_NEXT_SECONDS)
    brokers.asked[0].success("late")
    assert (len(brokers.asked), brokers.answer.value) == (2, "of the second")


def test_the_next_broker_is_asked_at_once_when_one_fails(brokers: Brokers) -> None:
    brokers.asked[0].failure(KafkaTimeoutError("first"))
    assert len(brokers.asked) == 2
    brokers.asked[1].failure(KafkaTimeoutError("second"))
    assert not brokers.answer.is_done
    brokers.asked[2].success("of the third")
    assert brokers.answer.value == "of the third"


def test_where_all_fail_the_last_failure_counts(brokers: Brokers) -> None:
    for number in range(3):
        assert not brokers.answer.is_done
        brokers.asked[number].failure(KafkaTimeoutError(f"of {number}"))
    assert str(brokers.answer.exception) == str(KafkaTimeoutError("of 2"))
