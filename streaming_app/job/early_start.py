"""What a job needs before its brokers, begun while these still start, as in the demo: its lock, and Spark.

Spark takes as long to start as a broker and its groups together. Of the process that `run` will be, this is the part
that knows nothing of the cluster; `run` takes it over and ends it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from typing_extensions import Self

from streaming_app.job.lock import JobLock, hold_lock_of
from streaming_app.job.stopping import STOP_SECONDS, StopRequestedError
from streaming_app.jvm.spark_jvm import SparkJvm
from streaming_app.jvm.spark_session import find_spark_jars, logged_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_app.config.settings import JobConfig

_POLL_SECONDS = 0.1


class EarlyStart:
    """The lock of a job and its session of Spark, which starts in a thread until the job asks for it.

    As a context manager it ends what the job has not taken over.
    """

    def __init__(self, config: JobConfig, report: Callable[[str], None]) -> None:
        """Lock the cluster, fetch Spark's jars if they are missing, and begin to start Spark; `report` gets lines.

        Of the configuration everything counts but the brokers. Raises JobError if another job writes the cluster, and
        SetupError without Java or jars.
        """
        self.jvm = SparkJvm()
        self._stop = threading.Event()
        self._lock, self._session = ExitStack(), ExitStack()
        self._started: Future[SparkSession] = Future()
        find_spark_jars(report)
        self._held = self._lock.enter_context(hold_lock_of(config))
        self._thread = threading.Thread(target=self._start, args=(config,), name="spark", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if not self._started.done():
            self.jvm.terminate()
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            self.jvm.kill()
        else:
            self._session.close()
        self._lock.close()

    def _start(self, config: JobConfig) -> None:
        def poll() -> None:
            if self._stop.is_set():
                raise StopRequestedError

        log_file = self._held.log_file
        try:
            session = logged_session(log_file, conf=config.conf, poll=poll, jvm=self.jvm)
            self._started.set_result(self._session.enter_context(session))
        except BaseException as error:  # noqa: BLE001 - the job raises it
            self._started.set_exception(error)

    @contextmanager
    def lock(self) -> Iterator[JobLock]:
        """Hand the lock over, which is released at the end of the block."""
        with self._lock:
            yield self._held

    @contextmanager
    def session(self, poll: Callable[[], None]) -> Iterator[SparkSession]:
        """Hand the session over once it has started; it ends with the block, as that of `spark_session` does.

        `poll` is called again and again before that, and may raise. Raises what kept Spark from starting.
        """
        with self._session:
            while not self._started.done():
                poll()
                self._thread.join(_POLL_SECONDS)
            yield self._started.result()
