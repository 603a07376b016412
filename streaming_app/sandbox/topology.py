"""Topologies as Streams clients send them, and matching topology descriptions, as plain dicts in snake_case.

The shapes are those of `schemas/messages/StreamsGroupHeartbeatRequest.json` (Topology) and
`StreamsGroupTopologyDescriptionUpdateRequest.json` (TopologyDescription).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from streaming_app.kafka.messages import Fields

_SOURCE, _PROCESSOR, _SINK = 1, 2, 3  # node types of KIP-1331
_CHANGELOG = "-changelog"


def topology(*subtopologies: Fields, epoch: int = 0) -> Fields:
    """Return a topology of these subtopologies. Their ids must be unique."""
    return {"epoch": epoch, "subtopologies": list(subtopologies)}


def internal_topic(
    name: str, partitions: int = 0, replication_factor: int = 0, configs: Mapping[str, str] | None = None
) -> Fields:
    """Return a repartition or changelog topic that the coordinator creates; 0 leaves the number to the broker."""
    pairs = [{"key": key, "value": value} for key, value in (configs or {}).items()]
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": replication_factor,
        "topic_configs": pairs,
    }


def subtopology(  # noqa: PLR0913 - each is a field of the protocol
    subtopology_id: str,
    *,
    source_topics: Sequence[str] = (),
    source_topic_regex: Sequence[str] = (),
    repartition_source_topics: Sequence[Fields] = (),
    repartition_sink_topics: Sequence[str] = (),
    state_changelog_topics: Sequence[Fields] = (),
    copartition_groups: Sequence[Sequence[str]] = (),
) -> Fields:
    """Return a subtopology. Copartition groups are given as names of its sources, and sent as indexes of them.

    The lists are sorted by name, as the coordinator requires. Raises ValueError for a name that is no source.
    """
    sources, regexes = sorted(source_topics), sorted(source_topic_regex)
    repartitions = sorted(repartition_source_topics, key=_name)
    names = {
        "source_topics": sources,
        "source_topic_regex": regexes,
        "repartition_source_topics": [_name(topic) for topic in repartitions],
    }
    return {
        "subtopology_id": subtopology_id,
        "source_topics": sources,
        "source_topic_regex": regexes,
        "state_changelog_topics": sorted(state_changelog_topics, key=_name),
        "repartition_sink_topics": sorted(repartition_sink_topics),
        "repartition_source_topics": repartitions,
        "copartition_groups": [_indexes(group, names) for group in copartition_groups],
    }


def build_description(described: Mapping[str, Any]) -> Fields:
    """Return a topology description that matches a topology: source → processor with the stores → sinks."""
    return {"subtopologies": [_describe(part) for part in described["subtopologies"]], "global_stores": []}


def _describe(part: Mapping[str, Any]) -> Fields:
    subtopology_id = part["subtopology_id"]
    sources = [*part["source_topics"], *map(_name, part["repartition_source_topics"])]
    stores = [_name(topic).removesuffix(_CHANGELOG) for topic in part["state_changelog_topics"]]
    processor = f"KSTREAM-PROCESSOR-{subtopology_id}"
    sinks = [(f"KSTREAM-SINK-{subtopology_id}-{topic}", topic) for topic in part["repartition_sink_topics"]]
    nodes = [
        _node(f"KSTREAM-SOURCE-{subtopology_id}", _SOURCE, source_topics=sources, successors=[processor]),
        _node(processor, _PROCESSOR, stores=stores, successors=[name for name, _topic in sinks]),
        *(_node(name, _SINK, sink_topic=topic) for name, topic in sinks),
    ]
    return {"subtopology_id": subtopology_id, "nodes": nodes}


def _node(name: str, node_type: int, **fields: Any) -> Fields:  # noqa: ANN401 - a list or a name
    node = {"name": name, "node_type": node_type, "source_topics": [], "sink_topic": None}
    return {**node, "stores": [], "successors": [], **fields}


def _name(topic: Mapping[str, Any]) -> str:
    return str(topic["name"])


def _indexes(group: Sequence[str], names: Mapping[str, list[str]]) -> Fields:
    unknown = set(group) - {name for sources in names.values() for name in sources}
    if unknown:
        raise ValueError(f"not a source of this subtopology: {', '.join(sorted(unknown))}")
    return {kind: [sources.index(name) for name in group if name in sources] for kind, sources in names.items()}
