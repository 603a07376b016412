"""The demo from start to end. Everything it starts it also ends; only the warehouse stays."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from streaming_app.alerts.settings import AlertSettings
from streaming_app.core.rules import RULES
from streaming_app.job.run import JobConfig, run
from streaming_app.local.container import chosen_broker
from streaming_app.local.living import LivingGroups, create_living_groups
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.serve.place import Place
from streaming_app.serve.printing import box
from streaming_app.serve.warehouse import Warehouse, quoted

_BEAT_SECONDS = 1.0

# What is shown, in this order: a title and a query of which {cluster} is the cluster's name.
_SHOWN = (
    (
        "Groups",
        "SELECT group_id, state, group_epoch, assignment_epoch, topology_epoch, member_count AS members, "
        "description_status, unsolicited_pushes AS unsolicited FROM groups WHERE cluster = {cluster} ORDER BY group_id",
    ),
    (
        "Members",
        "SELECT group_id, client_id, member_epoch, member_state, topology_epoch, instance_id FROM members "
        "WHERE cluster = {cluster} ORDER BY group_id, member_id LIMIT 12",
    ),
    (
        "Tasks on the move",
        "SELECT group_id, role, subtopology_id, partition, current, target, pending_revocation FROM assignments "
        "WHERE cluster = {cluster} AND (current <> target) ORDER BY group_id, partition LIMIT 8",
    ),
    (
        "What happened last",
        "SELECT at, group_id, kind, old, new FROM group_events WHERE cluster = {cluster} AND kind IN "
        "('state', 'unsolicited_push', 'deleted') ORDER BY at DESC, group_id LIMIT 10",
    ),
    (
        "What fires (the demo knows no grace; by default a group may be NotReady for five minutes)",
        "SELECT severity, summary FROM alerts WHERE cluster = {cluster} AND state = 'firing' "
        "ORDER BY severity, group_id",
    ),
)
_AT_ONCE = {"rules": {rule.name: {"for": 0} for rule in RULES.values() if rule.grace is not None}}


def show(warehouse: Place, cluster: str, say: Callable[[str], None], *, extra_seconds: float = 0.0) -> None:
    """Run the demo into `warehouse`. Raises LocalError, JobError or WarehouseError with a line for the user."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="streams-groups-demo-") as directory:
        say("Starting a Kafka broker ...")
        with chosen_broker(Path(directory), progress=say) as broker:
            say(f"Kafka answers at {broker.bootstrap_server}. Bringing groups to life ...")
            with StreamsGroupClient(broker.bootstrap_server) as client:
                groups = create_living_groups(client, say)
                with _beating(groups):
                    name = f"{cluster}-{os.getpid()}" if (warehouse / "_checkpoints" / cluster).names() else cluster
                    run(
                        JobConfig(
                            bootstrap_server=broker.bootstrap_server,
                            warehouse=warehouse,
                            cluster=name,
                            once=True,
                            alerts=AlertSettings.model_validate(_AT_ONCE),
                        ),
                        say,
                    )
                    threading.Event().wait(extra_seconds)
    _print_tables(Warehouse(warehouse), name)
    say(f"\nDone in {time.monotonic() - started:.0f} s; all that was started is stopped, the tables stay. Ask them:")
    for question in ("list --state", "describe --all-groups --members", 'sql "SELECT * FROM group_events LIMIT 20"'):
        say(f"  streams-groups {question} --warehouse {warehouse} --cluster {name}")


def _print_tables(opened: Warehouse, cluster: str) -> None:
    console = Console(width=None if Console().is_terminal else 130)
    for title, query in _SHOWN:
        names, rows = opened.answer(query.format(cluster=quoted(cluster)))
        console.print()
        console.print(box(names, rows, title))


@contextmanager
def _beating(groups: LivingGroups) -> Iterator[None]:
    """Let the groups heartbeat from a thread; they do not outlive the block."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(_BEAT_SECONDS):
            groups.heartbeat()

    thread = threading.Thread(target=beat, name="heartbeats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        groups.close()
