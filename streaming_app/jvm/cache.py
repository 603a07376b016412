"""Where files are kept that can be fetched or made again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_directory() -> Path:
    """Return the directory of the cache: STREAMS_GROUPS_CACHE, else this user's cache directory."""
    return Path(os.environ.get("STREAMS_GROUPS_CACHE") or platformdirs.user_cache_dir("streams-groups")).absolute()
