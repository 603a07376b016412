"""Changes of the type of a group, such as from classic to streams, from the metadata records of one group. Pure.

A group id has one type at a time. A broker that converts a group writes the tombstones of the old type and the records
of the new one together; the other way to another type is to delete the group and to use its id again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from streaming_app.stream.newest_records import GROUP_TYPES


class MetadataRecord(NamedTuple):
    """The newest metadata record of one type of a group that is known, or new in this batch."""

    offset: int
    record_type: int
    deleted: bool
    recorded_at: Any
    """The broker's time, in the caller's form."""


class TypeChange(NamedTuple):
    """A group has another type; `offset` is that of the record that proves it first, and its time is `at`."""

    offset: int
    at: Any
    old: str
    new: str


def type_changes(known: Iterable[MetadataRecord], new: Iterable[MetadataRecord]) -> Iterator[TypeChange]:
    """Yield the changes that the new records prove, oldest first. Records that are known already prove none.

    The change is as of the tombstone of the old type, if there is one: the first record of the new type is replaced by
    later ones, of which a reader that comes later sees only the last.
    """
    last = max(known, default=None)
    for record in sorted(new):
        if last is not None and record.offset <= last.offset:
            continue
        if last is not None and last.record_type != record.record_type and not record.deleted:
            proof = last if last.deleted else record
            old, new_type = GROUP_TYPES[last.record_type], GROUP_TYPES[record.record_type]
            yield TypeChange(proof.offset, proof.recorded_at, old, new_type)
        last = record
