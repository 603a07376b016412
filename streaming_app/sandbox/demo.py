"""The demo: a local broker, streams groups on it, and the job. At the end all of them stop; the tables remain."""

import itertools
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rich.console import Console

from streaming_app.alerts.catalog import rules
from streaming_app.config.settings import JobConfig
from streaming_app.job.run import run
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.queries.output import terminal_table
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.demo_groups import DemoGroups, create_demo_groups
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, quote
from streaming_app.text import MAX_NAME_CHARACTERS

_HEARTBEAT_SECONDS = 1.0
_MOVE_AFTER = 20  # heartbeats

# The tables that are printed, in this order: a title, and a query in which {cluster} is the cluster's name.
_TABLES = (
    (
        "Groups",
        "SELECT group_id, group_type, verdict, state, group_epoch, topology_epoch, member_count AS members, "
        "description_status FROM group_overview WHERE cluster = {cluster} ORDER BY group_id",
    ),
    (
        "Members",
        "SELECT group_id, client_id, member_epoch, member_state, topology_epoch, instance_id FROM members "
        "WHERE cluster = {cluster} ORDER BY group_id, member_id",
    ),
    (
        "Tasks that are being reassigned",
        "SELECT group_id, role, subtopology_id, partition, current, target, pending_revocation FROM assignments "
        "WHERE cluster = {cluster} AND (current <> target) ORDER BY group_id, partition LIMIT 8",
    ),
    (
        "Latest events",
        "SELECT at, group_id, kind, old, new FROM group_events WHERE cluster = {cluster} AND kind IN "
        "('state', 'unsolicited_push', 'deleted') ORDER BY at DESC, group_id LIMIT 10",
    ),
    (
        "Open alerts (the demo sets `for` of every rule to 0; by default a group may be NotReady for five minutes)",
        "SELECT severity, summary FROM alerts WHERE cluster = {cluster} AND opened_at IS NOT NULL AND ended_at IS NULL "
        "ORDER BY severity, group_id",
    ),
)
_SOON = {"rules": {name: {"for": 60 if name == "StreamsGroupStalled" else 0} for name in rules()}}  # less has no effect


def run_demo(warehouse: Location, cluster: str, progress: Callable[[str], None], *, page: str | None = None) -> None:
    """Run the demo, with its tables in `warehouse`. Raises UserError.

    If `page` has an address, the page is served there, and the job runs until a signal. `progress` gets lines for the
    user.
    """
    started = time.monotonic()
    is_used = bool((warehouse / "_checkpoints" / cluster).names())
    name = f"{cluster[: MAX_NAME_CHARACTERS - 20]}-{os.getpid()}" if is_used else cluster
    if is_used:
        progress(f"{warehouse} has a cluster {cluster!r} already: this one is {name!r}")
    with tempfile.TemporaryDirectory(prefix="streams-groups-demo-") as directory:
        progress("Starting a Kafka broker ...")
        with LocalBroker(Path(directory), progress=progress) as broker:
            progress(f"Kafka is ready at {broker.bootstrap_server}. Creating streams groups ...")
            config = JobConfig.model_validate(
                {
                    "bootstrap_server": broker.bootstrap_server,
                    "warehouse": warehouse,
                    "cluster": name,
                    "once": page is None,
                    "alerts": _SOON,
                }
            )
            with StreamsGroupClient(broker.bootstrap_server) as client:
                groups = create_demo_groups(client, progress)
                with ExitStack() as stack:
                    stack.enter_context(_heartbeats(groups, moving=page is not None))
                    stack.enter_context(_page(config, page, progress))
                    with suppress(SystemExit):  # a signal came, and the job did not end in time: stop the rest, too
                        run(config, progress)
    console, reader = Console(width=None if Console().is_terminal else 130), WarehouseReader(warehouse)
    for title, query in _TABLES:
        names, rows = reader.columns_and_rows(query.format(cluster=quote(name)))
        console.print()
        console.print(terminal_table(names, rows, title))
    seconds = time.monotonic() - started
    progress(f"\nDone in {seconds:.0f} s. All processes are stopped, the tables remain. Query them with:")
    if activate := to_activate():
        progress(f"  {activate}")
    for command in ("list --state", "describe --all-groups --members", 'sql "SELECT * FROM group_events LIMIT 20"'):
        progress(f"  streams-groups {command} --warehouse {warehouse} --cluster {name}")
    progress("See them in a browser with:")
    progress(f"  streams-groups web --warehouse {warehouse} --cluster {name}")


def to_activate() -> str | None:
    """Return the shell command that makes `streams-groups` available; None if the shell finds it already."""
    script = Path(sys.prefix, "bin", "activate")
    is_found = shutil.which("streams-groups") or not script.exists()
    return None if is_found else f". {os.path.relpath(script)}"


@contextmanager
def _page(config: JobConfig, listen: str | None, progress: Callable[[str], None]) -> Iterator[None]:
    """Serve the page during the block, if there is an address for it. Raises SetupError if the address is in use."""
    if listen is None:
        yield
        return
    from streaming_app.web.access import Access  # noqa: PLC0415 - not loaded by a demo without the page
    from streaming_app.web.page import PageServer  # noqa: PLC0415

    server = PageServer(config.warehouse, config.cluster, Access(listen), progress)
    server.start()
    try:
        for line in (*server.lines(), "The page shows the groups when Spark runs. Ctrl-C ends the demo."):
            progress(line)
        yield
    finally:
        server.stop()


@contextmanager
def _heartbeats(groups: DemoGroups, *, moving: bool) -> Iterator[None]:
    """Send the groups' heartbeats until the end of the block; if `moving`, groups also change, for the page to show."""
    stop = threading.Event()

    def send_heartbeats() -> None:
        for number in itertools.count(1):
            if stop.wait(_HEARTBEAT_SECONDS):
                return
            groups.heartbeat()
            if moving and number % _MOVE_AFTER == 0:
                groups.move()

    thread = threading.Thread(target=send_heartbeats, name="heartbeats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        groups.close()
