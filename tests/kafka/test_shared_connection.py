"""One connection of many users: made once, made again after a failure, closed when nobody uses it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, cast

import pytest
from kafka.errors import KafkaConnectionError

from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.protocol import GroupError
from streaming_app.threads import in_parallel


class Made:
    """Stands for a client: only whether it was closed matters here."""

    all: list[Made]

    def __init__(self) -> None:
        self.is_closed = self.is_worn = False

    @classmethod
    def of(cls, properties: Mapping[str, str], **_: Any) -> Made:
        assert properties == {"bootstrap.servers": "b:1"}
        cls.all.append(cls())
        return cls.all[-1]

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> SharedConnection[Admin]:
    monkeypatch.setattr(Made, "all", [], raising=False)
    return SharedConnection({"bootstrap.servers": "b:1"}, cast("type[Admin]", Made))


def use_once(connection: SharedConnection[Admin], error: Exception | None = None) -> Admin:
    with connection.use() as used:
        if error:
            raise error
    return used


def test_all_threads_use_one_connection_and_an_answer_with_an_error_is_no_failure(
    connection: SharedConnection[Admin],
) -> None:
    found = in_parallel(lambda _: use_once(connection), range(20), 20)
    with pytest.raises(GroupError):
        use_once(connection, GroupError(69))
    assert {*found, use_once(connection)} == {*Made.all}
    assert [one.is_closed for one in Made.all] == [False]
    connection.close()
    assert [one.is_closed for one in Made.all] == [True]


def test_after_a_failure_the_next_use_connects_again_and_the_requests_of_others_are_not_disturbed(
    connection: SharedConnection[Admin],
) -> None:
    with connection.use() as of_another:
        with pytest.raises(KafkaConnectionError):
            use_once(connection, KafkaConnectionError())
        second = use_once(connection)
        assert (second is of_another, [one.is_closed for one in Made.all]) == (False, [False, False])
    assert [one.is_closed for one in Made.all] == [True, False]


def test_a_client_that_one_broker_does_not_let_in_is_replaced_though_its_requests_to_others_succeed(
    connection: SharedConnection[Admin],
) -> None:
    """Its certificate has expired, and a new one is in the file."""
    first = use_once(connection)
    assert use_once(connection) is first
    cast("Made", first).is_worn = True
    use_once(connection)
    assert (use_once(connection) is first, [one.is_closed for one in Made.all]) == (False, [True, False])


def test_a_connection_that_is_in_use_when_the_job_ends_is_closed_after_its_use(
    connection: SharedConnection[Admin],
) -> None:
    with ExitStack() as users:
        users.enter_context(connection.use())
        connection.close()
        assert [one.is_closed for one in Made.all] == [False]
    use_once(connection)  # a late user leaves nothing open
    assert [one.is_closed for one in Made.all] == [True, True]
