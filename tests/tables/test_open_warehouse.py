"""`query` and `open_warehouse`: what programs get that read a warehouse by Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import streaming_app
from streaming_app.errors import WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS, CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"


def test_what_can_be_no_warehouse_is_one_line() -> None:
    with pytest.raises(WarehouseError, match=r"must be a directory[^\n]*$"):
        streaming_app.query("ftp://host/x", "SELECT 1")


class SessionWithout:
    """A session with the configuration of a real one, except for some settings."""

    def __init__(self, spark: SparkSession, *missing: str) -> None:
        self._spark, self._missing = spark, missing
        self.conf = self

    def get(self, name: str, default: str | None = None) -> str | None:
        return default if name in self._missing else self._spark.conf.get(name, default)


@pytest.mark.parametrize("missing", [(CATALOG,), (EXTENSIONS, CATALOG)])
def test_a_session_without_delta_is_told_what_it_lacks(spark: SparkSession, missing: tuple[str, ...]) -> None:
    with pytest.raises(WarehouseError) as raised:
        streaming_app.open_warehouse(SessionWithout(spark, *missing), "anywhere")
    line = str(raised.value)
    assert "\n" not in line
    assert [name for name in (EXTENSIONS, CATALOG) if f"{name} = " in line] == list(missing)
