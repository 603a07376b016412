"""The order of a Java TreeSet whose elements change after they were inserted. Only for `topology_description`.

Such a set keeps its tree as it was, so where a later element goes depends on its shape: `java.util.TreeMap` is a
red-black tree after Cormen, Leiserson and Rivest, and so is this one. Elements are only added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class _Entry:
    value: str
    parent: _Entry | None = None
    left: _Entry | None = None
    right: _Entry | None = None
    is_red: bool = True


class JavaTreeSet:
    """A sorted set of texts; `key` gives what they are compared by at the time of a comparison."""

    def __init__(self, key: Callable[[str], Any]) -> None:
        self._key = key
        self._root: _Entry | None = None

    def __iter__(self) -> Iterator[str]:
        stack: list[_Entry] = []
        entry = self._root
        while stack or entry:
            while entry:
                stack.append(entry)
                entry = entry.left
            entry = stack.pop()
            yield entry.value
            entry = entry.right

    def add(self, value: str) -> None:
        """Add an element that is not in the set yet."""
        key, parent, below = self._key(value), None, self._root
        is_less = False
        while below:
            parent, is_less = below, key < self._key(below.value)
            below = below.left if is_less else below.right
        entry = _Entry(value, parent)
        if parent is None:
            self._root = entry
        elif is_less:
            parent.left = entry
        else:
            parent.right = entry
        self._balance(entry)

    def _balance(self, entry: _Entry) -> None:
        while (parent := entry.parent) and parent.is_red and (grandparent := parent.parent):
            is_left = parent is grandparent.left
            uncle = grandparent.right if is_left else grandparent.left
            if uncle and uncle.is_red:
                parent.is_red = uncle.is_red = False
                grandparent.is_red = True
                entry = grandparent
                continue
            if entry is (parent.right if is_left else parent.left):
                self._rotate(parent, to_left=is_left)
                entry, parent = parent, entry
            parent.is_red, grandparent.is_red = False, True
            self._rotate(grandparent, to_left=not is_left)
        if self._root:
            self._root.is_red = False

    def _rotate(self, entry: _Entry, *, to_left: bool) -> None:
        """Put a child of the entry, the right one if `to_left`, in its place, and the entry below it."""
        child = entry.right if to_left else entry.left
        assert child is not None  # noqa: S101 - by the cases of `_balance`
        inner = child.left if to_left else child.right
        if to_left:
            entry.right, child.left = inner, entry
        else:
            entry.left, child.right = inner, entry
        if inner:
            inner.parent = entry
        child.parent = entry.parent
        if entry.parent is None:
            self._root = child
        elif entry is entry.parent.left:
            entry.parent.left = child
        else:
            entry.parent.right = child
        entry.parent = child
