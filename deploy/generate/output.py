"""Writes the texts of a generator to their files, or with `--check` reports the files that are out of date."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def finish(root: Path, texts: Mapping[str, str], too_long: Mapping[str, int], arguments: Sequence[str]) -> int:
    """Write the texts to their paths below `root`, and return 0.

    With `--check` it writes nothing. Each file that differs, or has more lines than `too_long` allows, gives a line on
    standard error, and the result is then 1.
    """
    parser = argparse.ArgumentParser(description="Write the generated files.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    if not parser.parse_args(arguments).check:
        for name, text in texts.items():
            (root / name).write_text(text, "utf-8")
        return 0
    found = [
        f"{name} is out of date: run make generate"
        for name, text in texts.items()
        if not (root / name).is_file() or (root / name).read_text("utf-8") != text
    ]
    for name, most in too_long.items():
        lines = len((root / name).read_text("utf-8").splitlines())
        found += [f"{name} has {lines} lines, and may have {most}"] if lines > most else []
    sys.stderr.writelines(f"{line}\n" for line in found)
    return 1 if found else 0
