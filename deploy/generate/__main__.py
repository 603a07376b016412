"""Writes every generated file outside `docs/`: `python -m deploy.generate`, or `make generate`."""

from __future__ import annotations

import sys

from deploy.generate.files import ROOT, files
from deploy.generate.output import finish

if __name__ == "__main__" and finish(ROOT, files(), {}, sys.argv[1:]):
    sys.exit(1)
