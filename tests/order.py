"""Which tests share a process of `make test`, and the order in which processes take them.

With `--dist loadgroup --no-loadscope-reorder` a process takes a group of tests at a time, in the order in which the
groups first occur. A module is a group, so that what its fixtures start is started once, but for the tests that use the
Spark session: a further session takes half a minute of processor time until its JVM is warm. They are two groups, each
half of them, and the first ones, as nothing else takes as long: with one, the other processes had ended long before it.
The tests that use three brokers are a group, too: these take processor time to start, and as long as they run. They
come next, then the modules of `LONG`, those that start something else, and what needs nothing comes last, as it is
short: the processes end at about the same time. That is the order of a first run, and of CI, whose checkout is new.
Each run writes how long its groups took to `build/test-durations.json`, and the next one takes the longest first.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

import pytest

SESSION = "spark"
"""The fixture, and the group of the tests that use it but for those below."""
STREAM_SESSION = "spark-stream"
"""The group of those that use the session in the folder `stream`, as many as all others."""
CLUSTER = "three_brokers"
"""The fixture, and the group of the tests without a session that use it."""
WHOLE = frozenset({"security"})
"""Folders whose modules share what they start, a secured broker, and so a process with each other."""
LONG = frozenset(
    {
        "tests/histories/test_histories",
        "tests/job/test_maintenance_service",
        "tests/job/test_taken_over",
        "tests/notify/test_apprise",
        "tests/relations/test_restarts",
        "tests/upgrade/test_upgrade",
    }
)
"""Modules without a session that take longest, half a minute or more: none of them may begin when others end."""
_STARTS = frozenset({"broker", "spark", "java", "browser", "slow"})


_DURATIONS = Path(__file__).parents[1] / "build" / "test-durations.json"


def add_groups(items: Iterable[pytest.Item]) -> None:
    """Mark each test with the group that runs in one process."""
    items = list(items)
    with_session = [item for item in items if SESSION in getattr(item, "fixturenames", ())]
    in_session = set(map(id, with_session))
    whole = {_home(item) for item in with_session} & WHOLE
    for item in items:
        if id(item) in in_session or _home(item) in whole:
            group = _session(item)
        else:
            group = CLUSTER if CLUSTER in getattr(item, "fixturenames", ()) else _home(item)
        item.add_marker(pytest.mark.xdist_group(group))


def order_items(items: list[pytest.Item]) -> None:
    """Order marked tests, in place: groups stay together, and tests of a group stay in their order."""
    starting = {_group(item) for item in items if any(mark.name in _STARTS for mark in item.iter_markers())}
    seconds = _recorded()
    items.sort(key=lambda item: (-seconds.get(_group(item), 0), *_rank(_group(item), starting)))


class Durations:
    """A plugin of the process that gives tests to others: it adds up the seconds of each group and stores them."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the seconds of a test's set-up, call or tear-down; pytest-xdist ends its name with `@` and the group."""
        self._seconds[report.nodeid.rpartition("@")[2]] += round(report.duration, 3)

    def pytest_sessionfinish(self) -> None:
        """Store them beside those of groups that this run left out."""
        _DURATIONS.parent.mkdir(exist_ok=True)
        _DURATIONS.write_text(json.dumps({**_recorded(), **self._seconds}, indent=1))


def _recorded() -> Mapping[str, float]:
    """Return the seconds of each group that an earlier run stored; none if there was none."""
    try:
        return json.loads(_DURATIONS.read_text())
    except (OSError, ValueError):
        return {}


def _rank(group: str, starting: Iterable[str]) -> tuple[int, str]:
    if group in {SESSION, STREAM_SESSION, CLUSTER}:
        return (1 if group == CLUSTER else 0), group
    if group in LONG:
        return 2, group
    return (3 if group in starting else 4), group


def _session(item: pytest.Item) -> str:
    return STREAM_SESSION if "stream" in PurePath(_home(item)).parts else SESSION


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    assert mark
    return str(mark.args[0])


def _home(item: pytest.Item) -> str:
    """Return the module's path without its ending, or that of its folder if the folder is kept whole."""
    path = PurePath(item.nodeid.partition("::")[0]).with_suffix("")
    return next((name for name in path.parts if name in WHOLE), path.as_posix())
