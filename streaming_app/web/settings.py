"""The section `page` of the configuration: its keys and their valid values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from streaming_app.section import Address, RegexText, Section

_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")
_LABEL = r"[A-Za-z_][A-Za-z0-9_.-]{0,62}"


def check_base_path(text: str) -> str:
    """Return the path without a slash at the end. Raises ValueError if it is no path."""
    path = text if text.startswith("/") or not text else f"/{text}"
    if not _BASE_PATH.fullmatch(path):
        raise ValueError(f'must be a path of letters, digits and -._~, such as /streams, not "{text}"')
    return path.rstrip("/")


_Name = Annotated[str, Field(pattern=f"^{_LABEL}$")]
_Value = Annotated[str, Field(min_length=1, max_length=63)]


class PageSettings(Section):
    """The section `page`."""

    listen: Address | None = None
    """Where the job serves the page: `HOST:PORT`; None: it does not. `web` has its own flag."""
    base_path: Annotated[str, AfterValidator(check_base_path)] = ""
    """The path of the page, for a proxy that passes paths on as they are."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which the page is reached, in addition to `localhost` and every IP address."""
    auth_file: Path | None = None
    """Who may read it: lines `USER:PASSWORD` or `Bearer TOKEN`; None: everybody who reaches the address."""
    labels: Mapping[_Name, Mapping[_Value, RegexText]] = {}
    """Labels of groups: by name and value, the regular expression that the whole group id matches."""
