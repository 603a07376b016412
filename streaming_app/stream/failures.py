"""Which errors of a batch fewer records at a time may cure (see `slices`), and which say something about a record.

| error                                                    | what follows                                              |
| -------------------------------------------------------- | --------------------------------------------------------- |
| of decoding or folding a record, or of a row of a group  | quarantine, or the group is set aside (see `fold_stage`)  |
| a lack of memory; another error of the fold; the end of  | that part of the batch is halved; a single record that    |
| a worker                                                 | fails repeatedly sets its group aside                     |
| the end of the process or of the JVM                     | the same when the batch is repeated                       |
| anything else, such as a broker or a store that is away  | the batch is repeated as it is                            |
"""

NOT_OF_RECORDS = (MemoryError, OSError, ImportError)
"""Errors that say nothing about a record or a group, wherever they are raised: they fail the batch."""
_OF_MEMORY = ("Python worker exited unexpectedly", "OutOfMemoryError")  # in texts of Spark


class FoldError(Exception):
    """Reading or folding records in this process failed; the text says why, in one line."""


def one_line(error: Exception) -> str:
    """Return the kind of an error and the first line of its text; for a FoldError only the text."""
    line = next(iter(str(error).splitlines()), "")
    return line if isinstance(error, FoldError) else f"{type(error).__name__}: {line}" if line else type(error).__name__


def may_fit_in_parts(error: Exception) -> bool:
    """Return whether fewer records at a time may cure an error."""
    if isinstance(error, (MemoryError, FoldError)):
        return True
    from pyspark.errors import PythonException  # noqa: PLC0415 - Spark is loaded by those who need it

    return isinstance(error, PythonException) or any(text in str(error) for text in _OF_MEMORY)


def is_lost_jvm(error: Exception) -> bool:
    """Return whether Spark's JVM no longer answers. It may have ended for lack of memory."""
    from py4j.protocol import Py4JNetworkError  # noqa: PLC0415 - as above

    return isinstance(error, (Py4JNetworkError, ConnectionError))
