"""What follows from state, checkpoint, tables and topic as a start finds them: one table of answers."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from streaming_app.job_status import is_too_long
from streaming_app.kafka.offsets_topic import OffsetsTopic
from streaming_app.stream.stream_state import StreamState
from streaming_app.stream.table_versions import TableVersions
from streaming_app.tables.checkpoint_offsets import find_damage
from streaming_app.tables.location import Location

_STAYS = "reading from the beginning; the history stays"


@dataclass(frozen=True)
class Found:
    """What a start finds."""

    known: StreamState
    topic: OffsetsTopic
    checkpoint: Location
    versions: TableVersions
    identity: str
    """Of the table with the rows."""
    away: timedelta | None
    """How long ago the job was last at the end of the topic; None: not known."""
    reset: bool

    @property
    def is_other(self) -> bool:
        """Whether the state is of another topic."""
        return bool(self.known.topic_id and self.difference)

    @property
    def difference(self) -> str | None:
        """How the topic differs from the one of the state."""
        known, topic = self.known, self.topic
        if known.cluster_id != topic.cluster_id:
            return f"This is Kafka cluster {topic.cluster_id}, and the tables are of cluster {known.cluster_id}."
        if known.topic != topic.name:
            return f"This is topic {topic.name}, and the tables are of topic {known.topic}."
        is_same = known.topic_id == topic.topic_id
        return None if is_same else f"Topic {topic.name} was deleted and created again since the job last ran."

    @property
    def has_grown(self) -> bool:
        """Whether the topic has more partitions than before."""
        return not self.is_other and 0 < self.known.partitions < self.topic.partitions

    @property
    def has_checkpoint(self) -> bool:
        """Whether the checkpoint is whole: if it was deleted while the job ran, it has only newer files."""
        return {"metadata", "offsets"} <= set(self.checkpoint.names())

    @cached_property
    def restored(self) -> list[str]:
        """The tables that are older than the state, or not the same as then."""
        return self.versions.restored()


def _if(condition: object, reason: str = "", end: str = "; ") -> str | None:
    if not condition:
        return None
    return f"{reason}{end}{_STAYS}" if reason else ""


ANSWERS: dict[str, Callable[[Found], str | None]] = {
    "the state is of another topic, with --reset": lambda one: (
        "another topic than before, reading from the beginning" if one.is_other else None
    ),
    "--reset is given": lambda one: _if(one.reset),
    "the state is missing, or both copies are damaged": lambda one: _if(not one.known.topic_id),
    "the state is that of a start which was killed": lambda one: _if(not one.known.rows),
    "the state is of rows that were lost": lambda one: _if(one.known.rows != one.identity),
    "there is no checkpoint, or only a part": lambda one: _if(not one.has_checkpoint),
    "the topic has more partitions": lambda one: _if(
        one.has_grown, f"the topic now has {one.topic.partitions} partitions", ", "
    ),
    "the checkpoint is damaged": lambda one: _if(
        damage := find_damage(one.checkpoint), f"the checkpoint is damaged, {damage}"
    ),
    "the state is newer than the tables": lambda one: _if(
        one.restored, f"lost or restored since: {', '.join(one.restored)}"
    ),
    "the checkpoint is older than the tables": lambda one: _if(
        beyond := one.versions.beyond(), f"the checkpoint is older than {', '.join(beyond)}"
    ),
    "tombstones may be gone": lambda one: _too_long(one.away, timedelta(milliseconds=one.topic.delete_retention_ms)),
}
"""By what is found, why everything is read again: the reason to tell, empty for "reading from the beginning", or None.

The first one counts. If there is none, also if the state is only older than the tables, the job resumes.
"""


def _too_long(away: timedelta | None, retention: timedelta) -> str | None:
    """Return a text if tombstones that the job has not read may be gone; else None."""
    if not is_too_long(away, retention):
        return None
    why = "not known when the job was last at the end of the topic"
    if away is not None:
        why = f"last at the end of the topic {_hours(away)} ago, and tombstones are removed after {_hours(retention)}"
    return f"{why}: {_STAYS}"


def _hours(time: timedelta) -> str:
    hours = time.total_seconds() / 3600
    return f"{hours:.0f} h" if hours >= 1 else f"{time.total_seconds():.0f} s"
