"""The histories with the classic protocol: the same operations, and what its coordinator writes of them.

Those without a counterpart are named, each with the reason. Their alerts are on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from streaming_app.groups.group import CLASSIC
from tests.histories.history import History

OF_CLASSIC = " (classic protocol)"
_DESCRIPTIONS = "there are no descriptions"
_INTERNAL = "the leader creates internal topics, and the log does not have them"
_REPORTS = "clients report to no broker how far copies of tasks are"
WITHOUT_COUNTERPART: Mapping[str, str] = {
    "plugin": _DESCRIPTIONS,
    "pushes descriptions": _DESCRIPTIONS,
    "whose description was cleaned up": _DESCRIPTIONS,
    "lack their descriptions": _DESCRIPTIONS,
    "The topics of a new application are created two minutes after it": _INTERNAL,
    "may not create its internal topics": _INTERNAL,
    "A changelog is deleted": _INTERNAL,
    "its standbys fall behind": _REPORTS,
    "the assignor finds no place for them": _REPORTS,
    "reports how far it is": _REPORTS,
    "as reports of the instance show": _REPORTS,
    "with standbys, which restore": _REPORTS,
    "The brokers refine warm-ups": "only the streams protocol has them on brokers; tests/health has probing rebalances",
    "stuck in revocation": "a rebalance that goes on is not in the log, and offsets do not move",
    "have different numbers of partitions": "the log does not have it: the leader's thread ends with an exception",
    "gets more partitions under a running application": "as above",
    "ids have five megabytes": "no record can hold one",
    "migration back to the classic protocol": "it is there",
    "takes a task away and gives it back": "the assignor is in the client",
}
"""Part of the name of a history -> why there is none with the classic protocol."""
_GREEN = {"successors": {"blue": "green"}}
DECLARED: Mapping[str, Mapping[str, Any]] = {"Green overlaps blue": _GREEN, "Green runs next to blue": _GREEN}
"""Part of a name -> what has to be declared: without changelogs in the log no other group is proven to take over."""


def with_classic_protocol(histories: Iterable[History]) -> list[History]:
    """Return the counterparts of these histories."""
    return [
        replace(one, name=f"{one.name}{OF_CLASSIC}", protocol=CLASSIC, settings=_settings(one))
        for one in histories
        if not any(part in one.name for part in WITHOUT_COUNTERPART)
    ]


def _settings(one: History) -> Mapping[str, Any]:
    declared = (settings for part, settings in DECLARED.items() if part in one.name)
    return {**one.settings, **next(declared, {})}
