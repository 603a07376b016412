"""Keys that went are left out, with a line that says what to use instead."""

from __future__ import annotations

from pathlib import Path

import yaml

from streaming_app.config.load import load
from streaming_app.config.removed import REMOVED


def test_keys_that_went_are_left_out_with_a_line_each_and_the_rest_counts(tmp_path: Path) -> None:
    file = tmp_path / "streams-groups.yaml"
    values = {
        "routes": [{"groups": "pay-.*", "team": "payments", "sinks": ["pager"]}],
        "silences": [{"groups": "batch-.*", "mute_time_intervals": ["nights"]}],
        "cluster": "prod",
    }
    file.write_text(yaml.safe_dump(values))
    loaded = load(file)
    assert loaded.settings.cluster == "prod"
    assert loaded.removed == [
        f"{name} was removed and does nothing: use {REMOVED[name,]}" for name in ("routes", "silences")
    ]
