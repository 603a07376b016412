"""Finds the data files of `schemas/`: definitions of records, tables and requests. Nothing is parsed here.

`schemas` in this package is a link to the folder next to it, and a wheel has a copy: a package `schemas` of its own
would hide a user's module of that name, or be hidden by it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@cache
def schemas(folder: str) -> Traversable:
    """Return the folder "records", "tables" or "messages" of `schemas/`."""
    return files("offsets_decoder") / "schemas" / folder
