"""New tables need no feature of Delta that some reader lacks."""

from pathlib import Path
from typing import Any, cast

from deltalake import DeltaTable

from streaming_app.tables.definitions import tables
from streaming_app.tables.writer import TableWriter


def test_every_reader_takes_new_tables_also_after_an_interrupted_creation(tmp_path: Path) -> None:
    (tmp_path / "groups" / "_delta_log" / "_staged_commits").mkdir(parents=True)
    (tmp_path / "alerts" / "_delta_log").mkdir(parents=True)
    assert TableWriter(cast("Any", None), tmp_path, "default").prepare() == {one.name for one in tables()}
    for definition in tables():
        table = DeltaTable(tmp_path / definition.name)
        protocol = table.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), definition.name
        assert (protocol.reader_features, protocol.writer_features) == (None, None)
        assert table.metadata().configuration["delta.enableDeletionVectors"] == "false"
        assert table.to_pandas().empty
        assert [field.name for field in table.schema().fields] == list(definition.names)
