"""What a worker of Spark loads before it folds its first record: each of them does, at each start."""

import subprocess
import sys

import pytest

# A worker finds these modules by the functions that `mapInArrow` gets.
_OF_WORKERS = ("streaming_app.stream.fold_stage", "streaming_app.stream.newest_records")
_NOT_FOR_WORKERS = {"kafka", "cryptography", "urllib3", "pydantic", "deltalake", "pyspark", "click", "starlette"}


@pytest.mark.parametrize("module", _OF_WORKERS)
def test_a_worker_loads_nothing_that_only_the_driver_needs(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in ran.stdout.split()}
    assert "pyarrow" in loaded
    assert loaded & _NOT_FOR_WORKERS == set()
