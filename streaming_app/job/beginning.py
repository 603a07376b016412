"""Where the job begins: it resumes, or reads from the beginning, or refuses, because offsets would mean other records.

Theory of operation
-------------------
Rows and checkpoint hold offsets of one topic of one cluster, and a topic that is deleted and made again counts from 0.
So which topic it was stands beside the checkpoint, and another one is refused until `--reset` is given.

Which groups table it was stands there, too. A checkpoint that belongs to other rows (the table was deleted and made
again, or the checkpoint was copied from another warehouse or cluster) would leave out what these have not seen. Such a
checkpoint is dropped, which means, like one that is missing: read from the beginning. It costs time and nothing else,
for rows skip what they have seen. A job killed in here begins at the next start as it would have now: while the
checkpoint is dropped, which no store does at one go, what stands beside it says that it belongs to no rows.

The history that was told before stays as it is: what the log tells again, after
compaction perhaps otherwise, is left out up to the highest offset that the history holds (`Beginning.told`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streaming_app.job.errors import JobError
from streaming_app.serve.place import Place

if TYPE_CHECKING:
    from streaming_app.job.files import Files
    from streaming_app.job.source import Topic
    from streaming_app.job.tables import Warehouse

_ROWS = "groups"  # in the record: the identity of the groups table
_NONE = ""  # there: the checkpoint is being dropped

HISTORY = {"group_events": "source_partition", "quarantine": "partition"}
"""Tables that only grow, with the column that names the topic's partition."""


@dataclass(frozen=True)
class Beginning:
    """How the job begins: `said` is for people, `told` the offset per table and partition that history reaches to."""

    said: str
    told: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


def begin(warehouse: Warehouse, checkpoint: Place, topic: Topic, *, reset: bool) -> Beginning:
    """Make checkpoint, tables and topic fit each other. Raises JobError when they do not and `reset` was not asked."""
    files, record = warehouse.files, _record(checkpoint)
    known = _read(files, record)
    source = {"cluster_id": topic.cluster_id, "topic": topic.name, "topic_id": topic.topic_id}
    now = {**source, _ROWS: warehouse.identity("groups")}
    other = known is not None and any(known.get(name) != value for name, value in source.items())
    if other and not reset:
        advice = "Give another --cluster, or --reset to drop the groups' rows and begin anew; history stays"
        raise JobError(f"{_difference(known or {}, now)} {advice}")
    if reset or known is None or known.get(_ROWS) != now[_ROWS]:
        if known is not None:
            _write(files, record, {**known, _ROWS: _NONE})
        files.remove(checkpoint)
    if reset:
        warehouse.forget_groups()
    _write(files, record, now)
    if files.exists(checkpoint / "commits"):
        return Beginning("resuming from the checkpoint")
    if other:  # its offsets have nothing to do with those of the history
        return Beginning("another topic than before, reading from the beginning")
    told = {name: warehouse.highest_offsets(name, partition) for name, partition in HISTORY.items()}
    again = any(told.values())
    return Beginning("reading from the beginning" + (" again; the history stays" if again else ""), told)


def check_same(files: Files, checkpoint: Place, topic: Topic) -> None:
    """Raise JobError if the topic is no longer the one that the job began with."""
    known = _read(files, _record(checkpoint))
    if known is not None and known["topic_id"] != topic.topic_id:
        raise JobError(
            f"Topic {topic.name} was deleted and made again while the job ran: start it with --reset to drop the "
            "groups' rows and begin anew; history stays"
        )


def _record(checkpoint: Place) -> Place:
    return Place(f"{checkpoint}.topic.json")


def _read(files: Files, record: Place) -> dict[str, str] | None:
    text = files.read(record)
    try:
        known: dict[str, str] | None = None if text is None else json.loads(text)
    except ValueError:
        return None
    return known


def _write(files: Files, record: Place, known: Mapping[str, str]) -> None:
    files.write(record, json.dumps(known))


def _difference(known: Mapping[str, str], now: Mapping[str, str]) -> str:
    if known.get("cluster_id") != now["cluster_id"]:
        return f"This is Kafka cluster {now['cluster_id']}, and the tables are of cluster {known.get('cluster_id')}."
    if known.get("topic") != now["topic"]:
        return f"This is topic {now['topic']}, and the tables are of topic {known.get('topic')}."
    return f"Topic {now['topic']} was deleted and made again since the job last ran."
