"""The cause of a failed stream, from what Spark says."""

from streaming_app.job.stream_failures import cause_of


def test_a_failure_of_java_within_a_batch_is_told_by_its_cause() -> None:
    failure = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An exception was raised by the Python "
        """Proxy. Return Message: Traceback (most recent call last):
  File "micro_batch.py", line 10, in __call__
py4j.protocol.Py4JJavaError: An error occurred while calling o6698.execute.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2898)
"""
    )
    assert cause_of(failure) == "org.apache.spark.SparkException: Job aborted due to stage failure"
    full = f"{failure}Caused by: java.io.IOException: No space left on device\n\t... 1 more\n"
    assert cause_of(full) == "java.io.IOException: No space left on device"
    assert cause_of(f"{full}streaming_app.errors.JobError: Two rows\n") == "streaming_app.errors.JobError: Two rows"
