"""Where the job begins: it resumes, or reads from the beginning, or refuses, because offsets would mean other records.

Theory of operation
-------------------
Rows and checkpoint hold offsets of one topic of one cluster, and a topic that is deleted and made again counts from 0.
So which topic it was stands beside the checkpoint, and another one is refused until `--reset` is given.

A checkpoint without the groups table, or the groups table without a checkpoint, both mean: read from the beginning.
Rows skip what they have seen. The history that was told before stays as it is: what the log tells again, after
compaction perhaps otherwise, is left out up to the highest offset that the history holds (`Beginning.told`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.job.errors import JobError

if TYPE_CHECKING:
    from streaming_app.job.source import Topic
    from streaming_app.job.tables import Warehouse

HISTORY = {"group_events": "source_partition", "quarantine": "partition"}
"""Tables that only grow, with the column that names the topic's partition."""


@dataclass(frozen=True)
class Beginning:
    """How the job begins: `said` is for people, `told` the offset per table and partition that history reaches to."""

    said: str
    told: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


def begin(warehouse: Warehouse, checkpoint: Path, topic: Topic, *, groups_are_new: bool, reset: bool) -> Beginning:
    """Make checkpoint, tables and topic fit each other. Raises JobError when they do not and `reset` was not asked."""
    record = checkpoint.with_name(f"{checkpoint.name}.topic.json")
    known, now = _read(record), {"cluster_id": topic.cluster_id, "topic": topic.name, "topic_id": topic.topic_id}
    other = known is not None and known != now
    if other and not reset:
        advice = "Give another --cluster, or --reset to drop the groups' rows and begin anew; history stays"
        raise JobError(f"{_difference(known or {}, now)} {advice}")
    if reset:
        warehouse.forget_groups()
    if reset or groups_are_new:
        shutil.rmtree(checkpoint, ignore_errors=True)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(now), "utf-8")
    if (checkpoint / "commits").exists():
        return Beginning("resuming from the checkpoint")
    if other:  # its offsets have nothing to do with those of the history
        return Beginning("another topic than before, reading from the beginning")
    told = {name: warehouse.highest_offsets(name, partition) for name, partition in HISTORY.items()}
    again = any(told.values())
    return Beginning("reading from the beginning" + (" again; the history stays" if again else ""), told)


def check_same(checkpoint: Path, topic: Topic) -> None:
    """Raise JobError if the topic is no longer the one that the job began with."""
    known = _read(checkpoint.with_name(f"{checkpoint.name}.topic.json"))
    if known is not None and known["topic_id"] != topic.topic_id:
        raise JobError(
            f"Topic {topic.name} was deleted and made again while the job ran: start it with --reset to drop the "
            "groups' rows and begin anew; history stays"
        )


def _read(record: Path) -> dict[str, str] | None:
    try:
        known: dict[str, str] = json.loads(record.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return known


def _difference(known: Mapping[str, str], now: Mapping[str, str]) -> str:
    if known.get("cluster_id") != now["cluster_id"]:
        return f"This is Kafka cluster {now['cluster_id']}, and the tables are of cluster {known.get('cluster_id')}."
    if known.get("topic") != now["topic"]:
        return f"This is topic {now['topic']}, and the tables are of topic {known.get('topic')}."
    return f"Topic {now['topic']} was deleted and made again since the job last ran."
