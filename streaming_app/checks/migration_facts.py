"""Reads what `migrate check` judges: groups from the tables, and what the brokers themselves say."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from streaming_app.checks.migration import Facts
from streaming_app.errors import WarehouseError
from streaming_app.groups.group import CLASSIC, STREAMS
from streaming_app.kafka import fact_requests, releases
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.error_lines import REQUEST_ERRORS, error_message
from streaming_app.kafka.properties import SecurityError
from streaming_app.queries.described import find_groups
from streaming_app.tables.reader import Row, WarehouseReader


def read_groups(reader: WarehouseReader, cluster: str, group_ids: Collection[str]) -> list[Row]:
    """Return the rows of `groups` of these groups; of none: of all with the classic protocol.

    Raises WarehouseError for a group that does not exist, or is not of Kafka Streams.
    """
    rows = find_groups(reader, cluster, group_ids or None, with_classic=True)
    if gone := next((one for one in rows if one["deleted_at"]), None):
        raise WarehouseError(f"Group {gone['group_id']!r} was deleted")
    rows = [{**one, "protocol": one["protocol"] or STREAMS} for one in rows]
    return [one for one in rows if group_ids or one["protocol"] == CLASSIC]


def ask_brokers(properties: Mapping[str, str], group_ids: Iterable[str]) -> Facts:
    """Return what the brokers say; if they do not answer, only why nothing is known."""
    configs = defaultdict[str, dict[str, str]](dict)
    try:
        with StreamsGroupClient.of(properties) as client:
            for one in fact_requests.group_configs(client, group_ids):
                configs[one.subject][one.name] = one.value
            of_brokers = fact_requests.configs_of_brokers(client, client.broker_ids())
            return Facts(
                brokers=releases.fetch(client),
                configs=releases.configs_by_broker((one.subject, one.name, one.value) for one in of_brokers),
                states={one["group_id"]: one["group_state"] for one in client.list_groups()},
                group_configs=configs,
            )
    except SecurityError as error:
        return Facts(why=f"they cannot be asked: {error}")
    except REQUEST_ERRORS as error:
        return Facts(why=error_message(error, properties, "migrate check needs Describe on the groups"))
