"""A member of a streams group that does what a Streams client does, or, on request, what it never should.

It holds no thread and no connection: its owner makes it beat. `settle` does so for several members at once.
"""

import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from streaming_app.protocol import topology as topologies
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.errors import UNKNOWN, GroupError
from streaming_app.protocol.messages import Fields

Tasks = dict[str, dict[str, list[int]]]
"""By role (`active`, `standby`, `warmup`), then by subtopology id: sorted partitions."""

_TOPIC_HEARD_OF_SECONDS = 3.0
JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
ROLES = ("active", "standby", "warmup")
STATUSES = (
    "STALE_TOPOLOGY",
    "MISSING_SOURCE_TOPICS",
    "INCORRECTLY_PARTITIONED_TOPICS",
    "MISSING_INTERNAL_TOPICS",
    "SHUTDOWN_APPLICATION",
    "ASSIGNMENT_DELAYED",
    "MISSING_CLIENT_TAGS",
)
"""By status code."""


class Member:
    """One member: what it tells its coordinator, and what the coordinator last told it.

    `epoch` is the member epoch, `assignment` the tasks it was given, `owned` the tasks it reported, `statuses` the
    group's troubles as (name, detail), `topology_description_required` whether its description was asked for and not
    pushed since. All requests raise GroupError when refused, and change nothing here then.
    """

    def __init__(  # noqa: PLR0913 - each is a field of the protocol
        self,
        client: StreamsGroupClient,
        group_id: str,
        topology: Mapping[str, Any],
        *,
        member_id: str | None = None,
        instance_id: str | None = None,
        rack_id: str | None = None,
        process_id: str | None = None,
        client_tags: Mapping[str, str] | None = None,
        user_endpoint: tuple[str, int] | None = None,
        topology_epoch: int | None = None,
        rebalance_timeout_ms: int = 300_000,
        holds_on: bool = False,
    ) -> None:
        """Prepare a member; nothing is sent before `join()`.

        `instance_id` makes it static. `topology_epoch` overrides the topology's own. One that `holds_on` beats
        without ever giving up or taking tasks when `settle` drives it, so the group stays Reconciling, until
        `rebalance_timeout_ms` is over.
        """
        self.client = client
        self.group_id = group_id
        self.topology = {**topology, "epoch": topology["epoch"] if topology_epoch is None else topology_epoch}
        self.member_id = member_id or new_id()
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.process_id = process_id or new_id()
        self.client_tags = dict(client_tags or {})
        self.user_endpoint = user_endpoint
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.holds_on = holds_on
        self.epoch = JOIN
        self.assignment: Tasks = _no_tasks()
        self.owned: Tasks = _no_tasks()
        self.statuses: list[tuple[str, str]] = []
        self.topology_description_required = False
        self.heartbeat_interval_ms: int | None = None

    @property
    def settled(self) -> bool:
        """Whether it reported to own exactly what it was given."""
        return self.owned == self.assignment

    def join(self) -> Fields:
        """Join, or rejoin as the same member, and return the response."""
        self.epoch, self.assignment, self.owned = JOIN, _no_tasks(), _no_tasks()
        endpoint = dict(zip(("host", "port"), self.user_endpoint, strict=True)) if self.user_endpoint else None
        return self._beat_to_join(
            topology=self.topology,
            rack_id=self.rack_id,
            process_id=self.process_id,
            user_endpoint=endpoint,
            client_tags=[{"key": key, "value": value} for key, value in self.client_tags.items()],
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            **_reported(self.owned),
        )

    def _beat_to_join(self, **fields: Any) -> Fields:  # noqa: ANN401 - any field of the request
        """Kafka 4.4.0 fails on a member that has an endpoint until its coordinator has heard of the source topics.

        A topic that was just created is such a one, for a moment; one that is missing stays so.
        """

        def again(error: BaseException) -> bool:
            return self.user_endpoint is not None and isinstance(error, GroupError) and error.code == UNKNOWN

        stops = stop_after_delay(_TOPIC_HEARD_OF_SECONDS)
        retrying = Retrying(retry=retry_if_exception(again), stop=stops, wait=wait_fixed(0.1), reraise=True)
        answer: Fields = retrying(self.heartbeat, **fields)
        return answer

    def heartbeat(self, **overrides: Any) -> Fields:  # noqa: ANN401 - any field of the request
        """Beat once and take in the response, which is returned. `overrides` are fields of the request."""
        fields = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "endpoint_information_epoch": 0,
        }
        answer = self.client.heartbeat({**fields, **overrides})
        self.epoch = answer["member_epoch"]
        self.heartbeat_interval_ms = answer["heartbeat_interval_ms"]
        self.statuses = [(_status(one["status_code"]), one["status_detail"]) for one in answer["status"] or []]
        self.topology_description_required |= answer.get("topology_description_required", False)
        if answer["active_tasks"] is not None:
            self.assignment = {role: _tasks(answer[f"{role}_tasks"]) for role in ROLES}
        return answer

    def acknowledge(self, owned: Tasks | None = None) -> Fields:
        """Report the assigned tasks as owned, which also gives up all others; or report `owned`, true or not."""
        owned = self.assignment if owned is None else owned
        answer = self.heartbeat(**_reported(owned))
        self.owned = owned
        return answer

    def leave(self, *, for_a_while: bool = False) -> Fields:
        """Leave for good; `for_a_while` is how a static member says that it will be back."""
        answer = self.heartbeat(member_epoch=LEAVE_FOR_A_WHILE if for_a_while else LEAVE)
        self.assignment, self.owned = _no_tasks(), _no_tasks()
        return answer

    def push_description(self, epoch: int | None = None, description: Mapping[str, Any] | None = None) -> None:
        """Push a topology description, asked for or not; by default the one that fits, for the current epoch."""
        self.client.push_description(
            self.group_id,
            self.member_id,
            self.topology["epoch"] if epoch is None else epoch,
            topologies.describe(self.topology) if description is None else description,
        )
        self.topology_description_required = False

    def step(self) -> None:
        """Beat as a Streams client would: report tasks when they changed, unless the member holds on to its own."""
        if self.settled or self.holds_on:
            self.heartbeat()
        else:
            self.acknowledge()


def settle(
    members: Sequence[Member],
    until: Callable[[], bool] | None = None,
    *,
    timeout_seconds: float = 30.0,
    pause_seconds: float = 0.05,
) -> None:
    """Make the members beat until a condition holds; by default until all are settled and their groups Stable.

    Raises TimeoutError with the states of the groups when it does not come to hold in time.
    """
    client, group_ids = members[0].client, sorted({member.group_id for member in members})
    deadline = time.monotonic() + timeout_seconds

    def states() -> dict[str, str]:
        return {group["group_id"]: group["group_state"] for group in client.describe(group_ids)}

    def settled() -> bool:
        return all(member.settled for member in members) and set(states().values()) == {"Stable"}

    while not (until or settled)():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not settled within {timeout_seconds} s: {states()}")
        for member in members:
            member.step()
        time.sleep(pause_seconds)


def new_id() -> str:
    """Make an id as Kafka's Uuid.randomUuid does: 16 random bytes in URL-safe base64, never with a dash in front."""
    while (made := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


def _no_tasks() -> Tasks:
    return {role: {} for role in ROLES}


def _tasks(listed: Sequence[Mapping[str, Any]] | None) -> dict[str, list[int]]:
    return {tasks["subtopology_id"]: sorted(tasks["partitions"]) for tasks in listed or []}


def _reported(owned: Tasks) -> Fields:
    return {
        f"{role}_tasks": [{"subtopology_id": name, "partitions": list(tasks)} for name, tasks in owned[role].items()]
        for role in ROLES
    }


def _status(code: int) -> str:
    return STATUSES[code] if 0 <= code < len(STATUSES) else f"UNKNOWN_STATUS_{code}"
