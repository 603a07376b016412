"""Writes every generated file outside of `docs/`: `python -m deploy.generate`, or `make generate`."""

from __future__ import annotations

from deploy.generate.files import ROOT, files

if __name__ == "__main__":
    for name, text in files().items():
        (ROOT / name).write_text(text, "utf-8")
