"""The Arrow schema of columns that are described in Spark's DDL."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(ddl: str) -> pa.Schema:
    """Return the schema as Spark converts it; times are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - Spark is loaded by those who need it
    from pyspark.sql.types import StructType  # noqa: PLC0415

    convert: Any = to_arrow_schema
    zone = {"timezone": "UTC"} if "timezone" in signature(convert).parameters else {}  # since Spark 4.2
    return convert(StructType.fromDDL(ddl), **zone)
