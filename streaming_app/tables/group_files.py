"""The files of the table `groups`: their ranges of group ids, and their sizes.

The files are like the leaves of a B-tree: each has some hundred rows, sorted by group id, and no other file has ids
in its range. If ranges overlap, as after Spark's workers have written rows, the files count as one, and
the next rewrite gives them separate ranges.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from streaming_app.tables.data_files import StoredFile
from streaming_app.tables.reader import quote

FILE_ROWS = 250
_FILES = 2_000  # the approximate maximum, since each batch reads all ranges; with more groups, files get more rows


class Span(NamedTuple):
    """One file, or files whose ranges overlap, with their common range; None: no limit."""

    first: str | None
    last: str | None
    files: tuple[StoredFile, ...]

    @property
    def condition(self) -> str:
        """The SQL condition for the rows of its range."""
        limits = [f"group_id {sign} {quote(id_)}" for sign, id_ in ((">=", self.first), ("<=", self.last)) if id_]
        return " AND ".join(limits) or "true"


def group_files(groups: DeltaTable, cluster: str) -> list[StoredFile]:
    """Return the files with rows of a cluster, sorted by their first group ids."""
    found = pa.table(groups.get_add_actions()).select(["path", "size_bytes", "num_records", "min", "max", "partition"])
    files = [
        StoredFile(unquote(path), size, rows or 0, first.get("group_id"), last.get("group_id"))
        for path, size, rows, first, last, partition in zip(*found.to_pydict().values(), strict=True)
        if partition["cluster"] == cluster
    ]
    return sorted(files, key=lambda file: file.first or "")


def stored_files(table: DeltaTable, cluster: str) -> list[StoredFile]:
    """Return the files with rows of a cluster, of any table."""
    found = pa.table(table.get_add_actions()).select(["path", "size_bytes", "partition"]).to_pydict()
    rows = zip(*found.values(), strict=True)
    return [StoredFile(unquote(path), size) for path, size, partition in rows if partition["cluster"] == cluster]


def spans_of(files: Iterable[StoredFile]) -> list[Span]:
    """Group sorted files into spans that do not overlap."""
    spans: list[Span] = []
    for file in files:
        if spans and (file.first is None or spans[-1].last is None or file.first <= spans[-1].last):
            before = spans.pop()
            last = None if file.last is None or before.last is None else max(before.last, file.last)
            spans.append(Span(before.first, last, (*before.files, file)))
        else:
            spans.append(Span(file.first, file.last, (file,)))
    return spans


def ranges(files: Iterable[StoredFile], size: int) -> list[Span]:
    """Return the spans of sorted files; neighbours of together at most `size` bytes become one span."""
    found: list[Span] = []
    for span in spans_of(files):
        if found and sum(file.size for file in (*found[-1].files, *span.files)) <= size:
            found[-1] = Span(found[-1].first, span.last, (*found[-1].files, *span.files))
        else:
            found.append(span)
    return found


def file_rows(groups: int) -> int:
    """Return the maximum number of rows per file for so many groups."""
    return max(FILE_ROWS, groups // _FILES)


def is_well_divided(files: Sequence[StoredFile]) -> bool:
    """Return whether no ranges overlap, and most files are not small."""
    total = sum(file.rows for file in files)
    return len(spans_of(files)) == len(files) <= 1 + 3 * total // file_rows(total)
