"""The JVMs of the tests start with the options of `tests/jvm_options.py`, unless someone has set others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from streaming_app.jvm.class_archive import archive_option
from streaming_app.jvm.jar_sets import find_jars, spark_jars
from tests.jvm_options import FAST, VARIABLES, start_jvms_as_users_do, start_jvms_fast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_variables_of_whoever_runs_the_tests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    start_jvms_as_users_do(monkeypatch)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "")
    start_jvms_fast(None)
    assert [os.environ[name] for name in VARIABLES] == ["-Dmine=1", ""]


@pytest.mark.skipif(not os.environ.get("SPARK_SUBMIT_OPTS", FAST).startswith(FAST), reason="other options are set")
def test_the_session_of_the_tests_has_the_options_and_the_archive_if_there_is_one(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    options = set(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert set(FAST.split()) <= options
    assert set(archive_option(find_jars(spark_jars()))) <= options
