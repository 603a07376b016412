"""The job as an application of `spark-submit`: `spark-submit ... job.py config.yaml [--once]`, see README.md.

The file has the keys of the job's configuration.
"""  # noqa: INP001 - a script

import signal
import sys
import threading
from pathlib import Path

import yaml
from pyspark.sql import SparkSession

import streaming_app


def main(file: str, *options: str) -> None:
    """Run the job in the session of the application until SIGTERM; with `--once` until all records are processed."""
    settings = yaml.safe_load(Path(file).read_text("utf-8"))
    spark = SparkSession.builder.appName("streams-groups").getOrCreate()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        streaming_app.run(spark, stop=stop, once="--once" in options, **settings)
    except streaming_app.JobError as error:
        raise SystemExit(f"Error: {error}") from None
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
