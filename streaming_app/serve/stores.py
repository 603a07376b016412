"""Asks object stores and HDFS through delta-rs, for no longer than somebody waits, and puts their troubles into words.

Credentials and endpoints come from the environment, as delta-rs reads it: see deploy/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow.fs import PyFileSystem

# Ten tries and three minutes are what delta-rs takes by default: too long for a command that somebody waits for.
OPTIONS = {"connect_timeout": "5s", "timeout": "30s", "max_retries": "4", "retry_timeout": "30s"}

_ADVICE = "the environment says how to get in, see deploy/README.md"
_MEANINGS = (
    (
        r"://169\.254\.169\.254/|://metadata\.google|DefaultCredentialsError|no credentials",
        f"no credentials: {_ADVICE}",
    ),
    (r"URL scheme is not allowed", "{server} is not https: set AWS_ALLOW_HTTP=true if that is meant"),
    (r"<Code>(\w+)</Code>\s*<Message>(.*?)</Message>", "{server} says {0}: {1}"),
    (r"\b(401 Unauthorized|403 Forbidden)\b", f"{{server}} refuses ({{0}}): {_ADVICE}"),
    (r"communicating with HDFS (.*)", "{server} does not answer: {0}"),
    (r"(dns error|tcp connect error|operation timed out|connection closed)(.*)", "{server} does not answer: {0}{1}"),
)
"""What stands in the words of delta-rs, the first that is found, and what it means."""
_ASKED = re.compile(r"\b(?:GET|HEAD|PUT|POST|DELETE) (\w+://[^/?\s]+)")
_JAVA_STACK = re.compile(r" at [\w.$/]+\(\w+\.java\b")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@contextmanager
def file_system(uri: str) -> Iterator[PyFileSystem]:
    """The directory of a store as a file system of Arrow, to read. Its troubles are raised as OSError, in one line."""
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - what has only local places loads no more
    from pyarrow.fs import PyFileSystem  # noqa: PLC0415

    try:
        yield PyFileSystem(DeltaStorageHandler(uri, OPTIONS))
    except FileNotFoundError:
        raise
    except Exception as error:  # noqa: BLE001 - delta-rs raises several kinds, of bases not in common
        raise OSError(reason(error)) from None


def reason(error: Any) -> str:  # noqa: ANN401 - whatever delta-rs raised
    """What delta-rs says of a trouble, in one line: what it means where that is known, else its own words."""
    said = " ".join(_COLOURS.sub("", str(error)).replace("↳", " ").split())
    said = _JAVA_STACK.split(said)[0]
    asked = _ASKED.search(said)
    for pattern, meaning in _MEANINGS:
        if found := re.search(pattern, said):
            return meaning.format(*found.groups(), server=asked[1] if asked else "the store")
    return said
