"""The JVM of Spark: what its command line shows, what it is started with, and how many cores it uses."""

import json
import os
import sys
from pathlib import Path
from subprocess import run

import pytest

from streaming_app.jvm.jars import connector_jars
from streaming_app.jvm.spark_jvm import COMPILER_OPTIONS, collector_option
from streaming_app.jvm.spark_session import _settings, default_cores

# Prints what the JVM was given, and its command line; the files are looked at when it is launched, and later. Its heap
# grows by 512 MB of arrays, which lists that a caller still refers to then drop.
PROGRAM = """
import json, os, subprocess, sys
from pathlib import Path

directory, found = Path(sys.argv[1]), {}

def look():
    for file in directory.glob("job.spark.*"):
        text = file.read_text("utf-8")
        if "hunter2" in text or "swordfish" in text:
            found[file.name] = oct(file.stat().st_mode & 0o777)

class Launch(subprocess.Popen):
    def __init__(self, *arguments, **named):
        look()
        super().__init__(*arguments, **named)

subprocess.Popen = Launch

from streaming_app.jvm.spark_session import spark_session
from streaming_app.jvm.spark_jvm import SparkJvm

conf = {
    "spark.hadoop.fs.azure.account.key.x": "hunter2 = $x\\\\y ü",
    "spark.driver.extraJavaOptions": "-Dpassword='sword fish \\\"\\\\' -Dother=swordfish",
}
jvm = SparkJvm()
with spark_session(directory / "job.spark.log", conf=conf, jvm=jvm) as spark:
    system = spark._jvm.java.lang.System
    arguments = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    lists = [spark._jvm.java.util.ArrayList(1 << 20) for _ in range(128)]
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    heaps = [runtime.totalMemory()]
    for one in lists:
        one.trimToSize()
    system.gc()
    heaps.append(runtime.totalMemory())
    look()
    spark._jvm.org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager(
        path := spark._jvm.org.apache.hadoop.fs.Path(str(directory / "0")), spark._jsc.hadoopConfiguration()
    ).createAtomic(path, False).close()
    print(json.dumps({
        "heaps": heaps,
        "command": Path(f"/proc/{jvm._process.pid}/cmdline").read_text("utf-8"),
        "modes": found,
        "left": sorted(file.name for file in directory.iterdir()),
        "secret": spark.sparkContext.getConf().get("spark.hadoop.fs.azure.account.key.x"),
        "password": system.getProperty("password"),
        "log": system.getProperty("log4j2.configurationFile"),
        "arguments": list(arguments),
        "master": spark.sparkContext.master,
    }))
print(jvm.is_running)
"""


@pytest.mark.spark
def test_secrets_are_never_on_the_command_line_of_the_jvm_which_gives_memory_back_at_once(tmp_path: Path) -> None:
    left = tmp_path / "job.spark.properties"  # by a job that was killed
    left.write_text("old", "utf-8")
    left.chmod(0o644)
    ran = run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    printed, is_running = ran.stdout.splitlines()
    found = json.loads(printed)
    assert not any(secret in found["command"] for secret in ("hunter2", "swordfish", "sword fish"))
    assert found["modes"] == {"job.spark.properties": "0o600", "job.spark.java": "0o600"}
    assert found["left"] == ["0", "job.spark.log", "job.spark.log4j2.properties"]
    assert (found["secret"], found["password"]) == ("hunter2 = $x\\y ü", 'sword fish "\\')
    assert {"-XX:+ExitOnOutOfMemoryError", *COMPILER_OPTIONS} <= set(found["arguments"])
    largest, heap = found["heaps"]
    assert largest > 500 << 20 and heap < 250 << 20  # noqa: PT018 - after one collection
    assert found["log"].endswith("/job.spark.log4j2.properties")
    assert found["master"] == f"local[{default_cores()}]"
    assert is_running == "False"


@pytest.mark.parametrize(
    ("options", "variable", "expected"),
    [
        ([], "", ["-XX:+UseSerialGC"]),
        (["-XX:+UseCompressedOops"], "-Dnot=UseG1GC", ["-XX:+UseSerialGC"]),
        (["-XX:+UseG1GC"], "", []),
        ([], "-Xss2m -XX:+UseZGC", []),
    ],
)
def test_the_garbage_collector_is_the_serial_one_unless_a_user_chooses_another(
    monkeypatch: pytest.MonkeyPatch, options: list[str], variable: str, expected: list[str]
) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", variable)
    assert collector_option(options) == expected


@pytest.mark.parametrize(
    ("cores", "conf", "master", "partitions"),
    [
        (1, {}, "local[1]", "1"),
        (64, {}, "local[4]", "4"),
        (64, {"spark.master": "local[8]"}, "local[8]", "8"),
        (64, {"spark.master": "local[*]"}, "local[*]", "64"),
        (64, {"spark.master": "k8s://h"}, "k8s://h", "4"),
        (64, {"spark.master": "local[3]", "spark.sql.shuffle.partitions": "7"}, "local[3]", "7"),
    ],
)
def test_a_shuffle_has_as_many_partitions_as_the_local_master_has_cores_four_at_most_by_default(
    monkeypatch: pytest.MonkeyPatch, cores: int, conf: dict[str, str], master: str, partitions: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    settings = _settings(Path("log"), conf, connector_jars(), [])
    assert (settings["spark.master"], settings["spark.sql.shuffle.partitions"]) == (master, partitions)
