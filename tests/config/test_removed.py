"""Keys that went are left out, with a line that says what to use instead."""

from __future__ import annotations

from pathlib import Path

import yaml

from streaming_app.config.load import load
from streaming_app.config.removed import REMOVED


def test_keys_that_went_are_left_out_with_a_line_each_and_the_rest_counts(tmp_path: Path) -> None:
    file = tmp_path / "streams-groups.yaml"
    values = {
        "page": {"listen": "127.0.0.1:1"},
        "metrics": {"compatibility": "kafka-lag-exporter"},
        "cluster": "prod",
    }
    file.write_text(yaml.safe_dump(values))
    loaded = load(file)
    assert loaded.settings.cluster == "prod"
    assert loaded.removed == [
        f"{'.'.join(path)} was removed and does nothing: use {REMOVED[path]}"
        for path in (("page", "listen"), ("metrics", "compatibility"))
    ]
