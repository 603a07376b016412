"""Labels that the configuration declares for groups."""

from typing import Any

import pytest
from pydantic import ValidationError

from streaming_app.config.declared import make_labels
from streaming_app.config.settings import Settings

ENTRIES = [
    {"groups": ".*", "team": "platform", "tier": "bronze"},
    {"groups": "payments-.*", "team": "payments"},
    {"groups": "payments-fraud", "tier": "gold"},
]


@pytest.mark.parametrize(
    ("group_id", "labels"),
    [
        ("search", {"team": "platform", "tier": "bronze"}),
        ("payments-ledger", {"team": "payments", "tier": "bronze"}),
        ("payments-fraud", {"team": "payments", "tier": "gold"}),
    ],
)
def test_all_entries_that_match_apply_and_the_last_one_wins(group_id: str, labels: dict[str, str]) -> None:
    settings = Settings.model_validate({"labels": ENTRIES})
    assert make_labels(settings.labels)(group_id) == labels


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"groups": ".*"}, "has no label"),
        ({"groups": ".*", "group": "x"}, "streams-groups sets it itself"),
        ({"groups": ".*", "since": "x"}, "streams-groups sets it itself"),
        ({"groups": ".*", "my-team": "x"}, "use letters, digits and _"),
        ({"groups": "(", "team": "x"}, "groups"),
        ({"team": "x"}, "groups"),
        ({"groups": ".*", "team": ""}, "team"),
    ],
)
def test_a_wrong_entry_is_refused_with_what_is_wrong(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Settings.model_validate({"labels": [entry]})
