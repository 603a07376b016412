"""Stores into what slices a batch is divided, next to the checkpoint, before the first of them is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from streaming_app.stream.slices import WHOLE, Attempt, LargeRecord, Offsets, Slice, divide, next_attempt
from streaming_app.tables.location import Location

if TYPE_CHECKING:
    from streaming_app.tables.files import Files


class SlicePlans:
    """The attempts at the batches of one stream. For each batch: `begin`, then `divide` or `keep_whole`.

    The file is written for batches that are large, and for those that may be repeated: the first one after a start, and
    one that failed while this object lived. So the many small batches of a running job cost nothing.
    """

    def __init__(self, files: Files, checkpoint: Location) -> None:
        self._files, self._file = files, Location(f"{checkpoint}.slices.json")
        self._is_first = True
        self._earlier: Attempt | None = None
        self._current: Attempt | None = None

    def begin(self, writer: str, batch: int) -> None:
        """Note that an attempt at a batch of the query `writer` starts."""
        last = self._read() if self._is_first else self._current
        self._current = next_attempt(last, writer, batch)
        self._earlier = last if self._current.number > 1 else None
        if self._is_first or self._earlier:
            self._write(self._current)
        self._is_first = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing but the size of the batch can divide it."""
        return bool(self._current and not self._current.slices and not self._current.halvings)

    def keep_whole(self, *, large: bool) -> tuple[Slice, ...]:
        """Return the one slice of a batch that is not divided; `large`: it is large enough to take its memory."""
        if large and self._current and not self._earlier:
            self._write(self._current)
        return WHOLE

    def divide(self, offsets: Mapping[int, Offsets], large: Sequence[LargeRecord]) -> tuple[Slice, ...]:
        """Return the slices of the batch, once they are stored. The arguments are those of `slices.divide`."""
        assert self._current is not None  # noqa: S101 - `begin` comes first
        self._current = replace(self._current, slices=divide(self._current, self._earlier, offsets, large))
        self._write(self._current)
        return self._current.slices

    def _read(self) -> Attempt | None:
        text = self._files.read(self._file)
        try:
            fields = json.loads(text or "")
            slices = tuple(Slice(end and tuple(end), position) for end, position in fields.pop("slices"))
            return Attempt(**fields, slices=slices)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None  # there is none, or its file is damaged

    def _write(self, attempt: Attempt) -> None:
        slices = [(one.end, one.position) for one in attempt.slices]
        self._files.write(self._file, json.dumps({**asdict(attempt), "slices": slices}))
