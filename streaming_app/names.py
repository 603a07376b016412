"""The one form of the names that users give and that become parts of paths, such as the name of a cluster."""

from __future__ import annotations

import re

MAX_CHARACTERS = 200  # a file name may have 255 bytes, and suffixes such as `.running.json` are added
# In a directory with the checkpoint of cluster `X` are `X.topic.json` and others, and `.new` while they are written.
_NAME = re.compile(rf"(?!\.{{1,2}}\Z)(?!.*\.(?:json|new)\Z)[A-Za-z0-9._-]{{1,{MAX_CHARACTERS}}}")


def is_name(text: str) -> bool:
    """Return whether the text is a valid name: one component of a path, and not one that is used already."""
    return _NAME.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Return the name. Raises ValueError, with the valid form, if it is invalid."""
    if not is_name(text):
        form = f'letters, digits, ".", "_" and "-" (at most {MAX_CHARACTERS}, not "." or ".."'
        raise ValueError(f'must be {form}, no ".json" or ".new" at the end), not "{text}"')
    return text
