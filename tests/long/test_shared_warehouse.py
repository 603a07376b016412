"""Many clusters in one table in S3: each commit is a conditional put, and nothing is lost or doubled.

Minutes are those of each test: SHARED_MINUTES=10 for a release. It needs moto's server, see deploy/check-tools.txt.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_app.tables.location import Location
from tests.support import stores
from tests.support.tools import deploy_tool
from tests.support.waiting import MINUTES
from tests.support.warehouses import make_warehouse

SECONDS = 60 * float(os.environ.get("SHARED_MINUTES", "1"))
WRITERS = 12
pytestmark = pytest.mark.timeout(2 * SECONDS + 4 * MINUTES)

# Appends rows of a cluster of its own, replaces one, and maintains the table, until its time is over. Prints how many
# it has appended.
WRITER = """
import sys, time
import pyarrow as pa
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.rust_table import BatchId, RustTable

uri, cluster, until = sys.argv[1], sys.argv[2], time.monotonic() + float(sys.argv[3])
table, number = RustTable(Location.of(uri), cluster), 0
while time.monotonic() < until:
    rows = table.to_table([{"group_id": f"{cluster}-{number}", "source_partition": 0, "last_offset": number}])
    table.append(rows, BatchId([cluster], number))
    table.append(rows, BatchId([cluster], number))  # as after a crash
    number += 1
    if number % 5 == 0:
        table.replace(rows, f"group_id = '{cluster}-{number - 1}'")
    if number % 20 == 0:
        MaintainedTable(table).maintain()
print(number)
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server, which delta-rs finds."""
    server = deploy_tool("moto_server")
    with pytest.MonkeyPatch.context() as patched, stores.s3(tmp_path_factory.mktemp("s3"), server) as url:
        for name, value in {**stores.S3_ENVIRONMENT, "AWS_ENDPOINT_URL": url}.items():
            patched.setenv(name, value)
        yield url


def test_twelve_writers_lose_nothing(endpoint: str, tmp_path: Path) -> None:
    assert endpoint
    uri = f"s3a://{stores.BUCKET}/twelve/log_ends"
    place = Location.of(uri)
    for file in (make_warehouse(tmp_path / "warehouse") / "group_records").rglob("*"):
        if file.is_file():
            (place / str(file.relative_to(tmp_path / "warehouse" / "group_records"))).write_bytes(file.read_bytes())
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, uri, f"c{number}", str(SECONDS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    outputs = [writer.communicate(timeout=SECONDS + 2 * MINUTES) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * WRITERS, [error[-2_000:] for _, error in outputs]
    counts = {f"c{number}": int(printed) for number, (printed, _) in enumerate(outputs)}
    table = place.delta_table().to_pyarrow_table()
    found = Counter(zip(table["cluster"].to_pylist(), table["group_id"].to_pylist(), strict=True))
    assert set(found.values()) == {1}
    assert Counter(cluster for cluster, _ in found) == counts
    print({"commits": sum(counts.values()), "version": place.delta_table().version()})
