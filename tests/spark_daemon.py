"""The process that forks the Python workers of the session that tests share, in place of `pyspark.daemon`.

With each task a worker lets importers forget what they know of files, and collects garbage. Spark puts archives on the
path, of which one is the jar with its core: their lists of thousands of files were read again for each task, which took
a tenth of a second. What is imported from them, `pyspark` and `py4j`, is installed as well.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path


def leave_out_archives() -> None:
    """Leave on the path only what is no file."""
    archives = {one for one in sys.path if Path(one).is_file()}
    sys.path[:] = [one for one in sys.path if one not in archives]
    for one in archives:
        sys.path_importer_cache.pop(one, None)


if __name__ == "__main__":
    leave_out_archives()
    from pyspark import daemon

    # Forked workers have them, and no task looks for garbage in them.
    import streaming_app.stream.fold_stage
    import streaming_app.stream.newest_records  # noqa: F401

    gc.freeze()
    daemon.manager()
