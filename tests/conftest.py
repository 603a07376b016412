"""Fixtures for all tests: a shared broker, separate brokers for tests that break theirs, and a Spark session.

HYPOTHESIS_PROFILE is how many examples a property is tried with: `quick` in `make test-fast`, `fast`, or `exhaustive`.
"""

import gc
import itertools
import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from tests.marks import START_JVMS, add_marks
from tests.order import CLUSTER, Durations, add_groups, order_items
from tests.support.failed_rules import FailedRule, note_failed_rules
from tests.support.ivy import broker_jars
from tests.support.jvm_archive import broker_archive
from tests.support.jvm_options import SHARED_SESSION, start_jvms_fast
from tests.support.warehouses import make_warehouse

# On import, kafka-python 3.0 reads its definitions with a function that Python 3.11 and 3.12 deprecated.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from streaming_app.jvm.jars import KAFKA_VERSION
    from streaming_app.jvm.spark_session import spark_session
    from streaming_app.kafka.client import StreamsGroupClient
    from streaming_app.sandbox import broker as local_broker
    from streaming_app.sandbox import member
    from streaming_app.sandbox.broker import LocalBroker
    from tests.support.container import Broker, select_broker
    from tests.support.delta import delta_conf
    from tests.support.job_runner import run_once
    from tests.support.kafka_cluster import LocalCluster
    from tests.support.offsets_log import RawRecord, read_log
    from tests.support.waiting import MINUTES, wait_until


# A machine that does much else takes longer than a user's.
local_broker.START_SECONDS = member.SETTLE_SECONDS = MINUTES

# Without limits of time: CI shares its cores. Only `exhaustive` tries other examples each time.
for _profile, _examples in (("quick", 20), ("fast", 150), ("exhaustive", 20_000)):
    settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        derandomize=_profile != "exhaustive",
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_sessionstart() -> None:
    """Look for no garbage while tests are collected: modules and tests stay, and each time all of them are visited."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Look for it in what tests make, from now on, and not in the million objects that are there for good."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark each test by what it needs to run; order those that `-m` selects, and let their JVMs start fast."""
    add_marks(items)
    in_processes = hasattr(config, "workerinput")  # not what a process of xdist starts, which has its variables
    if in_processes:
        add_groups(items)
    yield
    if in_processes:
        order_items(items)
    if any(mark.name in START_JVMS for item in items for mark in item.iter_markers()):
        start_jvms_fast(broker_archive())


def pytest_configure(config: pytest.Config) -> None:
    """Record how long groups of tests take; ignore the same warning when a test imports more of kafka-python."""
    whole = not (config.option.markexpr or config.option.keyword)
    if whole and config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations())
    for function in ("read_text", "open_text"):
        config.addinivalue_line("filterwarnings", f"ignore:{function} is deprecated:DeprecationWarning")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Escape the lone surrogates of hostile names: one test process cannot send them to the other."""
    return _without_surrogates((yield))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        inner = map(_without_surrogates, value)
        return list(inner) if isinstance(value, list) else tuple(inner)
    return value


_broker_log: list[Path] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last log lines of the shared broker to the report of a failed test: CI does not keep the log file."""
    report = yield
    if report.failed and call.when == "call" and "broker" in getattr(item, "fixturenames", ()) and _broker_log:
        lines = [line for line in _broker_log[0].read_text("utf-8", "replace").splitlines() if " INFO " not in line]
        report.sections.append(("the shared broker's last warnings and errors", "\n".join(lines[-40:])))
    return report


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka 4.4.0 broker that all tests share: use unique names (see `unique`)."""
    with select_broker(tmp_path_factory.mktemp("broker"), progress=print) as running:
        if isinstance(running, LocalBroker):
            _broker_log.append(running.log_file)
        yield running


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[StreamsGroupClient]:
    with StreamsGroupClient(broker.bootstrap_server) as connected:
        yield connected


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session as the job starts it, but for `SHARED_SESSION`, and with Delta Lake for those who query."""
    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    with spark_session(log_file, conf=SHARED_SESSION | delta_conf(), progress=print) as session:
        yield session


@pytest.fixture(autouse=True)
def _nothing_is_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves anything persisted in the shared session: what a batch leaves, a job keeps for months."""
    yield
    if session := request.node.funcargs.get("spark"):
        cached = session._jsparkSession.sharedState().cacheManager()
        is_empty = wait_until(cached.isEmpty)  # streams that were stopped may end a moment later
        cached.clearCache()  # so that the next test does not fail for it, too
        assert is_empty, "a DataFrame is still persisted"


@pytest.fixture(autouse=True)
def failed_rules() -> Iterator[list[FailedRule]]:
    """The alert rules that crash during the test, which then fails: one that means it to happen empties the list."""
    with note_failed_rules() as failed:
        yield failed
    assert failed == []


_numbers = itertools.count()


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Returns a name that no other test uses: `unique("orders")`."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40]
    return lambda name: f"{name}-{test}-{next(_numbers)}"


@pytest.fixture
def group_id(unique: Callable[[str], str]) -> str:
    """The id of a group that no other test uses."""
    return unique("group")


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., LocalBroker]]:
    """Starts a broker for this test only, from jars: `start_broker(version=…, properties=…)`."""
    with ExitStack() as running:

        def start(version: str = KAFKA_VERSION, **settings: object) -> LocalBroker:
            directory = tmp_path / f"broker-{next(_numbers)}"
            class_path = broker_jars(version)
            return running.enter_context(LocalBroker(directory, version=version, class_path=class_path, **settings))

        yield start


_clusters: list[LocalCluster] = []  # the one that runs


@pytest.fixture
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> LocalCluster:
    """Three brokers, all of which run when a test begins, and must when it ends: use topics of the test's own."""
    if not _clusters:
        cluster = LocalCluster(tmp_path_factory.mktemp("cluster"))
        cluster.start()
        _clusters.append(cluster)
    return _clusters[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop the three brokers once the next test does not use them: they take a tenth of a core also when idle."""
    if CLUSTER not in getattr(nextitem, "fixturenames", ()):
        while _clusters:
            _clusters.pop().stop()


@pytest.fixture
def read_offsets() -> Callable[..., list[RawRecord]]:
    """Reads all of `__consumer_offsets`: `read_offsets(bootstrap_server, group_id)` gives one group's, in log order."""
    return read_log


@pytest.fixture(scope="session")
def create_warehouse() -> Callable[[Path], Path]:
    """Creates a warehouse without rows in a directory, as the job creates it, and returns the directory."""
    return partial(make_warehouse, as_the_job=True)


@pytest.fixture
def empty_warehouse(tmp_path: Path) -> Path:
    return make_warehouse(tmp_path / "empty_warehouse", as_the_job=True)


@pytest.fixture
def run(broker: Broker, spark: SparkSession, tmp_path: Path) -> Callable[..., str]:
    """Runs the job once over the records of a topic, in the shared session, and returns its first line.

    Before the first run of a test the tables are there already, without rows.
    """
    has_run: set[object] = set()

    def once(topic: str, **settings: object) -> str:
        warehouse = settings.get("warehouse", tmp_path)
        if warehouse not in has_run and isinstance(warehouse, Path) and not (warehouse / "groups").exists():
            make_warehouse(warehouse, as_the_job=True)
        has_run.add(warehouse)
        return run_once(spark, broker.bootstrap_server, **{"warehouse": tmp_path, "topic": topic, **settings})[0]

    return once
