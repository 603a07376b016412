"""The process that forks Spark's Python workers in local mode, in place of `pyspark.daemon`.

With each task a worker of Spark lets importers forget what they know of files, and collects garbage. Spark puts
archives on the path, of which one is the jar with its core: their lists of thousands of files are read again for each
task, which takes a tenth of a second. What is imported from them, `pyspark` and `py4j`, is installed as well. Workers
that are forked here have our modules already, share their memory, and look for no garbage in them. On a cluster this
package may itself be in an archive, so workers there are Spark's own.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path


def _leave_out_archives() -> None:
    """Leave on the path only what is no file."""
    archives = {one for one in sys.path if Path(one).is_file()}
    sys.path[:] = [one for one in sys.path if one not in archives]
    for one in archives:
        sys.path_importer_cache.pop(one, None)


def _serve() -> None:
    """Fork workers until the JVM ends."""
    _leave_out_archives()
    from pyspark import daemon  # noqa: PLC0415 - not from an archive

    import streaming_app.stream.fold_stage  # noqa: PLC0415 - see above
    import streaming_app.stream.newest_records  # noqa: F401, PLC0415

    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call] # it has no types


if __name__ == "__main__":
    _serve()
