"""kafka-python's admin client, with what needs its connections: requests to coordinators, and a clean failure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.protocol.metadata.find_coordinator import CoordinatorType

from streaming_app.protocol.errors import COORDINATOR_CODES, GroupError
from streaming_app.protocol.messages import Fields

_COORDINATORS_AT_ONCE = 1000  # group ids in one FindCoordinator


class Admin(KafkaAdminClient):  # type: ignore[misc] # kafka-python is untyped
    """Raises kafka-python's KafkaError where its parent does."""

    def __init__(self, **configs: Any) -> None:  # noqa: ANN401 - kafka-python's own settings
        """Connect; when the cluster does not answer, leave no thread and no socket behind, as kafka-python would."""
        try:
            super().__init__(**configs)
        except BaseException:
            if hasattr(self, "_client"):
                self._metrics.close()
                self._client.close()
            raise

    def ask_coordinator(self, group_id: str, request: Any) -> Fields:  # noqa: ANN401 - kafka-python is untyped
        """Send a request to the coordinator of a group, without a retry."""

        async def ask() -> Fields:
            node_id = await self._find_coordinator_id(group_id)
            response = await self._manager.send(request, node_id=node_id)
            return response.to_dict()  # type: ignore[no-any-return] # kafka-python is untyped

        return self._manager.run(ask)  # type: ignore[no-any-return] # kafka-python is untyped

    def ask_coordinators(
        self,
        group_ids: Sequence[str],
        request_for: Callable[[list[str]], Any],
        at_once: int,
    ) -> list[Fields]:
        """Send each coordinator requests for up to `at_once` of its groups, without a retry."""

        async def ask() -> list[Fields]:
            groups: defaultdict[int, list[str]] = defaultdict(list)
            for start in range(0, len(group_ids), _COORDINATORS_AT_ONCE):
                found = await self._find_coordinator_ids(group_ids[start : start + _COORDINATORS_AT_ONCE])
                for group_id, node_id in found.items():
                    groups[node_id].append(group_id)
            answers = []
            for node_id, ids in groups.items():
                for start in range(0, len(ids), at_once):
                    response = await self._manager.send(request_for(ids[start : start + at_once]), node_id=node_id)
                    answers.append(response.to_dict())
            return answers

        return self._manager.run(ask)  # type: ignore[no-any-return] # kafka-python is untyped

    def delete_group(self, group_id: str) -> int:
        """Send a DeleteGroups for one group and return its error code; GroupError if the coordinator cannot be had."""
        request = self._delete_groups_request([group_id])
        code: int = self.ask_coordinator(group_id, request)["results"][0]["error_code"]
        if code in COORDINATOR_CODES:
            raise GroupError(code)
        return code

    def forget_coordinators(self, group_ids: Iterable[str]) -> None:
        """Look these groups' coordinators up again at the next request."""
        for group_id in group_ids:
            self._manager.cluster._coordinators.pop((CoordinatorType.GROUP, group_id), None)  # noqa: SLF001 - no public way
