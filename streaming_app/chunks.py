"""Divides many items into lists of a given size, as `itertools.batched` of Python 3.12 does."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`, none of which is empty."""
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
