"""kafka-python's admin client, with what needs its connections: requests to coordinators, and a clean failure."""

from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.protocol.metadata.find_coordinator import CoordinatorType

from streaming_app.protocol.errors import COORDINATOR_CODES, GroupError
from streaming_app.protocol.messages import Fields


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

    def delete_group(self, group_id: str) -> int:
        """Send a DeleteGroups for one group and return its error code; GroupError if the coordinator cannot be had."""
        request = self._delete_groups_request([group_id])
        code: int = self.ask_coordinator(group_id, request)["results"][0]["error_code"]
        if code in COORDINATOR_CODES:
            raise GroupError(code)
        return code

    def forget_coordinator(self, group_id: str | None) -> None:
        """Look the coordinator up again at the next request."""
        self._manager.cluster._coordinators.pop((CoordinatorType.GROUP, group_id), None)  # noqa: SLF001 - no public way
