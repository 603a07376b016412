"""What offsets the job has passed, read from the checkpoint that Spark keeps beside the tables. No Spark here.

Spark writes `offsets/N` before batch N, with where the batch will end, and `commits/N` once the batch is done, which is
after its rows are in the tables. So the newest batch that is in both has been passed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from streaming_app.serve.place import Place
from streaming_app.serve.warehouse import WarehouseError

_VERSION = "v1"
_NOTHING = "-"  # how Spark spells that a source has no offset yet
_TRIES = 3  # Spark drops old batches while we look


class Position(NamedTuple):
    """The offsets that the tables hold: per partition of `topic` the first offset that the job has not passed."""

    topic: str
    batch_id: int
    offsets: Mapping[int, int]

    def behind(self, ends: Mapping[int, int]) -> dict[int, int]:
        """How many offsets are left up to these end offsets, by partition; only where there are any."""
        left = {partition: end - self.offsets.get(partition, 0) for partition, end in ends.items()}
        return {partition: count for partition, count in left.items() if count > 0}


def position(warehouse: Place | Path, cluster: str) -> Position | None:
    """Where the job that writes `cluster` is; None before its first batch is done.

    Raises WarehouseError when the checkpoint cannot be read, or is of a Spark that writes it otherwise.
    """
    checkpoint = Place.of(warehouse) / "_checkpoints" / cluster
    for attempt in range(_TRIES):
        batch_id = _newest(checkpoint)
        if batch_id is None:
            return None
        file = checkpoint / "offsets" / str(batch_id)
        try:
            return _read(file.read_text(), batch_id)
        except FileNotFoundError:
            if attempt == _TRIES - 1:
                raise WarehouseError(f"{file} is missing: the checkpoint was tampered with") from None
        except OSError as error:
            raise WarehouseError(f"Cannot read {file}: {error.strerror or error}") from None
        except (ValueError, AttributeError):
            raise WarehouseError(f"{file} is no offset log of Spark as this release knows it") from None
    return None


def _newest(checkpoint: Place) -> int | None:
    try:
        names = (checkpoint / "commits").names()
    except OSError as error:
        raise WarehouseError(f"Cannot read {checkpoint}: {error.strerror or error}") from None
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _read(text: str, batch_id: int) -> Position | None:
    """Lines: the version, the batch's settings, then one per source; the job has one, with one topic."""
    version, _, source = text.splitlines()[:3]
    if version != _VERSION:
        raise ValueError(version)
    if source == _NOTHING:
        return None
    ((topic, offsets),) = json.loads(source).items()
    return Position(topic, batch_id, {int(partition): int(offset) for partition, offset in offsets.items()})
