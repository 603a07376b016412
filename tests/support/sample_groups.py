"""A warehouse for the tests of the page: groups in every state, a rich topology, alerts, history, hostile names."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from streaming_app.groups.topology import topology_hash
from streaming_app.job_status import JobStatus, StreamStatus
from streaming_app.notify.mutes import Mute, Mutes
from tests.long.hostile import STORED
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import Row, group_row, member_row, subtopology_row, task_row
from tests.support.warehouses import append, make_warehouse, replace_rows
from tests.web import sample_others

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
"""The time at which the tests look at a page."""
WRITTEN = NOW - timedelta(minutes=12)
"""The time at which the job wrote the sample: no page shows it as new."""
RICH = "orders-enrichment"
HOSTILE = ("<script>alert(1)</script><b>", "${spark.sql.session.timeZone}", STORED, "ab'\\${x}🎉" * 2_700, "")


def write_sample(path: Path, now: datetime, more: int = 0, *, hostile: bool = True) -> Path:
    """Create a warehouse whose newest record is a few seconds older than `now`; `more`: further ordinary groups."""
    make_warehouse(path)
    rows = [*_named(now), *(_hostile(now) if hostile else ()), *(_ordinary(number, now) for number in range(more))]
    append(path, "groups", *rows)
    append(path, "alerts", *_alerts(now))
    append(path, "group_health_history", *_health(now), *_health_history(now))
    append(path, "task_copies", *_copies(now))
    append(path, "group_events", *_events(now))
    append(path, "topologies", *_topologies(now))
    append(path, "descriptions", *_descriptions(now))
    append(path, "lag", *_lag(now), *sample_others.lag(now))
    append(path, "lag_history", *_lag_history(now), *sample_others.lag_history(now))
    mute = Mute(
        pattern=RICH,
        starts_at=now - timedelta(minutes=890),
        ends_at=now - timedelta(minutes=870),
        reason="the deployment is known",
        created_by="ops",
    )
    Mutes(path, "default").add(mute)
    append(path, "group_records", *sample_others.group_records(now))
    append(path, "offset_commits", *sample_others.offset_commits(now, hostile=hostile))
    append(path, "broker_facts", sample_others.coordinator(now))
    if hostile:
        append(path, "groups", group("eu-orders", "Stable", now, 33, cluster=sample_others.OTHER_CLUSTER))
    beat(path, now)
    return path


def clock() -> datetime:
    """Return the time at which the tests look at a page."""
    return NOW


def replace_group(path: Path, row: Row) -> None:
    quoted = row["group_id"].replace("'", "''")
    replace_rows(path, "groups", row, where=f"group_id = '{quoted}'")


def beat(path: Path, now: datetime, **facts: Any) -> None:
    """Write a heartbeat of a job that has caught up."""
    status = {"caught_up": True, "caught_up_at": now, "last_success_at": now, **facts}
    offsets = StreamStatus(caught_up_at=now - timedelta(minutes=2))
    status = {"offsets": offsets, "log_ends_at": {"2": now - timedelta(seconds=20)}, **status}
    job = JobStatus(**{"started_at": now - timedelta(days=3), **status})
    write_heartbeat(path, at=now, every_seconds=600.0, facts=job)


def group(group_id: str, state: str, now: datetime, minutes: float, **columns: Any) -> Row:
    since = now - timedelta(minutes=minutes)
    described = {
        "validated_topology_epoch": 0,
        "stored_description_epoch": 0,
        "failed_description_epoch": -1,
        "description_status": "CURRENT",
        "description_since": since,
        "solicitable": False,
        "unsolicited_pushes": 0,
    }
    times = {"state_since": since, "assigned_at": since, "first_seen_at": now - timedelta(days=9), "updated_at": since}
    lists = {"assignment_configs": [], "topology_epochs": [], "last_changes": []}
    of_group = {"metadata_hash": 1, "last_offset": 100, "readiness_recorded": True}
    parts = {"subtopologies": [part("0", sources=["events"])]}
    return group_row(group_id, state, **{**described, **times, **lists, **of_group, **parts, **columns})


def part(
    name: str,
    sources: Iterable[str] = (),
    repartition: Iterable[str] = (),
    writes: Iterable[str] = (),
    changelogs: Iterable[str] = (),
    patterns: Iterable[str] = (),
) -> Row:
    topics = {"source_topics": list(sources), "source_topic_regex": list(patterns)}
    return subtopology_row(
        name, changelogs=changelogs, repartition=repartition, repartition_sink_topics=list(writes), **topics
    )


def member(number: int, now: datetime, *, state: str = "STABLE", client: str = "orders", **columns: Any) -> Row:
    """Return an entry of `members`; two members each are threads of one process."""
    host, thread = divmod(number, 2)
    of_thread = {
        "member_state": state,
        "client_id": f"{client}-{host}-StreamThread-{thread + 1}",
        "client_host": f"/10.4.{host // 200}.{host % 200 + 11}",
        "process_id": f"{host:08x}-4c1e-4d2a-9b7e-0123456789ab",
        "joined_at": now - timedelta(hours=30 - number),
        "updated_at": now - timedelta(minutes=5),
    }
    return member_row(f"{client}-member-{number}", **{**of_thread, **columns})


def task(
    member_id: str,
    task_id: str,
    role: str = "active",
    *,
    current: bool = True,
    target: bool = True,
    revoke: bool = False,
) -> Row:
    held = {"current": current and not revoke, "target": target, "pending_revocation": revoke}
    return task_row(member_id, task_id, role, **held, assignment_epoch=7 if current else None)


def rich_group(now: datetime, **columns: Any) -> Row:
    """Return a group with four subtopologies, six threads on three hosts, standby and warm-up tasks, and two moves."""
    prefix = RICH
    parts = [
        part("0", ["orders"], writes=[f"{prefix}-by-customer-repartition"]),
        part(
            "1",
            ["customers"],
            repartition=[f"{prefix}-by-customer-repartition"],
            writes=[f"{prefix}-totals-repartition"],
            changelogs=[f"{prefix}-orders-by-customer-changelog", f"{prefix}-customers-changelog"],
        ),
        part("2", [], repartition=[f"{prefix}-totals-repartition"], changelogs=[f"{prefix}-totals-changelog"]),
        part("3", ["refunds"], patterns=["audit-.*"], changelogs=[f"{prefix}-refund-window-changelog"]),
    ]
    members = [member(number, now) for number in range(6)]
    ids = [one["member_id"] for one in members]
    tasks = [
        task(ids[(sub + n) % 6], f"{sub}_{n}") for sub in range(4) for n in range(4) if (sub, n) not in {(1, 3), (2, 0)}
    ]
    tasks += [task(ids[(sub + n + 2) % 6], f"{sub}_{n}", "standby") for sub in (1, 2, 3) for n in range(4)]
    tasks += [task(ids[4], "1_3", target=False, revoke=True), task(ids[0], "1_3", current=False)]
    tasks += [task(ids[2], "2_0"), task(ids[1], "2_0", "warmup")]
    members[4]["member_state"] = "UNREVOKED_TASKS"
    return group(
        RICH,
        "Reconciling",
        now,
        4,
        **{"members": members, "assignments": tasks, "subtopologies": parts, "topology_epoch": 0, **columns},
    )


def _plain(group_id: str, state: str, now: datetime, minutes: float, size: int, **columns: Any) -> Row:
    members = [member(number, now, client=group_id) for number in range(size)]
    tasks = [task(members[n % size]["member_id"], f"0_{n}") for n in range(2 * size)] if size else []
    return group(group_id, state, now, minutes, **{"members": members, "assignments": tasks, **columns})


def _named(now: datetime) -> Iterator[Row]:
    yield rich_group(now)
    reason = "MISSING_SOURCE_TOPICS: Source topics card-transactions are missing."
    missing = {"not_ready_reason": reason, "validated_topology_epoch": -1, "assignments": []}
    yield _plain("fraud-detection", "NotReady", now, 17, 2, **missing)
    assigning = {"causes_since_assignment": "member_joined", "description_status": "NEVER_STORED"}
    yield _plain("inventory-sync", "Assigning", now, 1.2, 3, **assigning)
    yield _plain("nightly-settlement", "Empty", now, 412, 0, description_status="STALE")
    yield _plain("clickstream-sessions", "Stable", now, 6_012, 8)
    yield _plain("customer-profiles", "Stable", now, 20_133, 4, stale_member_count=1)
    yield _plain("ledger-reconciler", "Stable", now, 301, 2, description_status="FAILED")
    yield _plain("payments-enrichment", "Stable", now, 9_900, 12)
    yield _plain("price-feed", "Stable", now, 55, 2, description_status="UNCERTAIN")
    yield _plain("shipment-router", "Unknown", now, 2, 2, description_status="NO_TOPOLOGY", subtopologies=[])
    yield _plain("legacy-reports", "Dead", now, 1_000, 0, deleted_at=now - timedelta(minutes=1_000))


def _hostile(now: datetime) -> Iterator[Row]:
    for name in HOSTILE:
        one = member(0, now, client=name, client_id=name or "none", instance_id=name)
        parts = [part("0", [name or "t"], changelogs=[f"{name}-store-changelog"], patterns=[name or "p"])]
        held = [task(one["member_id"], "0_0")]
        yield group(name, "Stable", now, 70, members=[one], assignments=held, subtopologies=parts)


def _ordinary(number: int, now: datetime) -> Row:
    state = "Reconciling" if number % 97 == 0 else "Stable"
    return _plain(f"application-{number:05}", state, now, number % 5_000 + 3, 4)


def _health(now: datetime) -> Iterator[Row]:
    def health(group_id: str, verdict: str, minutes: float, why: str, **columns: Any) -> Row:
        at = now - timedelta(minutes=minutes)
        times = {"since": at, "at": at, "judged_at": at, "inputs_at": now - timedelta(seconds=40)}
        return {"cluster": "default", "group_id": group_id, "verdict": verdict, "why": why, **times, **columns}

    down = {"severity": "critical", "evidence": '{"not_over": "it is not ready"}'}
    why = (
        "NotReady since the deployment, it processes nothing: MISSING_SOURCE_TOPICS: Source topics card-transactions "
        "are missing."
    )
    yield health("fraud-detection", "Down", 17, why, **down, losing_at=now + timedelta(hours=3))
    yield health("ledger-reconciler", "Stalled", 9, "no offset of 2 partitions has moved", severity="critical")
    yield health("price-feed", "Behind", 55, "the oldest record that waits is 2 hours old", severity="warning")
    yield health("nightly-settlement", "Off", 412, "It has no members, and nothing waits.")
    yield health("payments-enrichment", "Ok", 9_900, "Offsets advance.")
    yield health("clickstream-sessions", "Idle", 6_012, "Nothing waits.")
    for name in (*HOSTILE[:2], HOSTILE[4]):
        yield health(name, "Down", 70, f"{name} waits", severity="warning")


def _health_history(now: datetime) -> Iterator[Row]:
    for minutes, verdict, why in (
        (1_398, "Unknown", "Its lag is not known: no commit, or no answer about the ends of its logs."),
        (1_388, "Ok", "Offsets advance."),
        (895, "Down", "no members since the deployment; 12,000 offsets wait in 8 partitions"),
        (893, "Down", "no members since the deployment; 14,000 offsets wait in 8 partitions"),
        (880, "Ok", "Offsets advance."),
        (4, "Restoring", "tasks came to another member"),
    ):
        at = now - timedelta(minutes=minutes)
        row = {"cluster": "default", "group_id": RICH, "at": at, "verdict": verdict, "why": why, "evidence": "{}"}
        yield {**row, "severity": "critical" if verdict == "Down" else None, "since": at - timedelta(minutes=5)}


def _copies(now: datetime) -> Iterator[Row]:
    common = {"cluster": "default", "group_id": RICH, "stateful": True, "subtopology_id": "1"}
    offsets = {"task_offset": 1_000, "task_end_offset": 89_000, "lag": 88_000}
    offsets["reported_at"] = now - timedelta(minutes=6)
    for number, role, partition in ((1, "restoring", 0), (5, "dormant", 2)):
        yield {**common, **offsets, "member_id": f"orders-member-{number}", "role": role, "partition": partition}


def _alerts(now: datetime) -> Iterator[Row]:
    def alert(rule: str, severity: str, group_id: str, minutes: float, summary: str, **columns: Any) -> Row:
        at = now - timedelta(minutes=minutes)
        named = {"rule": rule, "severity": severity, "group_id": group_id, "summary": summary}
        common = {"cluster": "default", "alert_id": f"{group_id}-{rule}-{minutes}", "evidence": "{}", "deliveries": []}
        return {**common, **named, "since": at, "opened_at": at, **columns}

    missing = "fraud-detection is NotReady and processes nothing: Source topics card-transactions are missing."
    rejected = "nightly-settlement: the broker's plugin rejected the topology description of epoch 0"
    slow = f"{RICH} has been Reconciling since the deployment"
    yield alert("StreamsGroupDown", "critical", "fraud-detection", 12, missing, alert_id="down-1a2b3c4d")
    yield alert("StreamsGroupDescriptionFailed", "warning", "nightly-settlement", 400, rejected)
    ended = {"ended_at": now - timedelta(minutes=878), "ended_by": "evidence"}
    yield alert("StreamsGroupDown", "critical", RICH, 893, f"{RICH} has no members", **ended)
    yield alert("StreamsGroupStalled", "warning", RICH, 3, slow, opened_at=None)


def _events(now: datetime) -> Iterator[Row]:
    def event(minutes: float, kind: str, old: str | None, new: str | None, **columns: Any) -> Row:
        named = {"kind": kind, "old": old, "new": new, "at": now - timedelta(minutes=minutes)}
        place = {"source_partition": 0, "offset": 10_000 - round(minutes * 6)}
        return {"cluster": "default", "group_id": RICH, **named, **place, **columns}

    yield event(1_400, "created", None, "streams")
    for number in range(4):
        host, thread = number // 2, f"orders-{number // 2}-StreamThread-{number % 2 + 1}"
        where = {"member_id": f"orders-member-{number}", "client_host": f"/10.4.0.{host + 11}"}
        yield event(1_399 - number, "member_joined", None, thread, **where)
    for minutes, kind, old, new in (
        (1_398, "state", "NotReady", "Assigning"),
        (1_390, "state", "Assigning", "Reconciling"),
        (1_389, "state", "Reconciling", "Stable"),
        (1_380, "description_status", "NEVER_STORED", "UNCERTAIN"),
        (1_379, "description_status", "UNCERTAIN", "CURRENT"),
    ):
        yield event(minutes, kind, old, new)
    for hour, (minutes, cause) in enumerate(
        ((900, "member_left"), (610, "member_joined,topics_changed"), (250, "config_changed"), (9, "member_joined"))
    ):
        yield event(minutes, "assignment_epoch", str(hour + 3), str(hour + 4), cause=cause)
        yield event(minutes, "state", "Stable", "Reconciling")
        if minutes > 9:
            yield event(minutes - 6, "state", "Reconciling", "Stable")
    for minutes, member_id, tasks in sample_others.assignments():
        yield event(minutes, "assignment", None, tasks, member_id=member_id)
    yield event(898, "deployment", (now - timedelta(minutes=902)).isoformat(), "processes")
    yield event(250, "config_changed", "{}", '{"streams.num.standby.replicas": "1"}')
    yield event(901, "member_left", "streams", None, member_id="orders-member-3")
    for minutes, number in ((611, 3), (9.2, 4), (9.1, 5)):
        yield event(minutes, "member_joined", None, "streams", member_id=f"orders-member-{number}")


def _lag(now: datetime) -> Iterator[Row]:
    def partition(group_id: str, topic: str, number: int, lag: int | None, status: str = "OK", **columns: Any) -> Row:
        committed = 1_204_331 + 97 * number
        ends = {"committed_offset": committed, "log_end_offset": None if lag is None else committed + lag}
        seconds = {"lag_seconds": None if lag is None else lag / 40, "lag_seconds_is_lower_bound": False}
        common = {"cluster": "default", "group_id": group_id, "topic": topic, "partition": number, "observed_at": now}
        common["leader"] = 2
        return {**common, **ends, **seconds, "lag": lag, "offset_status": status, **columns}

    for number, lag in enumerate((18_240, 2_112, 0, 9_001)):
        yield partition(
            RICH,
            "orders",
            number,
            lag,
            "WAITS" if lag else "OK",
            subtopology_id="0",
            task_id=f"0_{number}",
            client_host=f"/10.4.0.{11 + number // 2}",
        )
    for number, lag in enumerate((12, 0, 340, None)):
        yield partition(RICH, "customers", number, lag, subtopology_id="1", task_id=f"1_{number}")
    yield partition(
        "fraud-detection",
        "card-payments",
        0,
        88_412,
        "WAITS",
        late_since=now - timedelta(minutes=27),
        subtopology_id="0",
    )
    yield partition("payments-enrichment", "payments", 0, 7)


def _descriptions(now: datetime) -> Iterator[Row]:
    """Yield descriptions of two groups, which write topics that fraud-detection and the rich group read."""
    for group_id, topic in (("payments-enrichment", "card-payments"), ("fraud-detection", "orders")):
        nodes = [
            {"node": "out", "kind": "sink", "subtopology_id": "0"},
            {"node": topic, "kind": "topic", "subtopology_id": None},
        ]
        edge = {"from_node": "out", "from_kind": "sink", "to_node": topic, "to_kind": "topic", "subtopology_id": "0"}
        common = {"cluster": "default", "topology_epoch": 0, "is_newest": True, "truncated": False}
        found = {"status": "AVAILABLE", "node_count": 1, "fetched_at": now - timedelta(minutes=9), "asked_at": now}
        kept = {"description_nodes": nodes, "description_edges": [edge]}
        yield {**common, **found, **kept, "group_id": group_id, "content_hash": topic}


def _lag_history(now: datetime) -> Iterator[Row]:
    """One partition falls behind, one keeps up, and the lag of one is not known for an hour."""
    for minute in range(240):
        at = now - timedelta(minutes=240 - minute)
        lag = round(400 + 60 * (minute % 7) + (900 * max(0, minute - 200) if minute < 230 else 1_100 * (255 - minute)))
        common = {
            "cluster": "default",
            "group_id": RICH,
            "offset_status": "OK",
            "observed_at": at,
            "log_start_offset": 0,
        }
        for topic, partition, behind in (
            ("orders", 0, lag),
            ("orders", 3, 20 * (minute % 5)),
            ("customers", 0, None if 100 <= minute < 160 else 12),
        ):
            end = 1_000_000 + 2_400 * minute
            ends = {"log_end_offset": None, "committed_offset": end}
            if behind is not None:
                ends = {"log_end_offset": end, "committed_offset": end - behind}
            lags = {"lag": behind, "lag_seconds": None if behind is None else behind / 40}
            yield {**common, **ends, **lags, "topic": topic, "partition": partition}


def _topologies(now: datetime) -> Iterator[Row]:
    newest = rich_group(now)["subtopologies"]
    older = [{**newest[0]}, {**newest[1], "state_changelog_topics": newest[1]["state_changelog_topics"][:1]}]
    for offset, (days, parts) in enumerate(((8, older), (2, newest))):
        yield {
            "cluster": "default",
            "group_id": RICH,
            "topology_hash": topology_hash(parts),
            "topology_epoch": 0,
            "first_seen_at": now - timedelta(days=days),
            "subtopologies": parts,
            "source_partition": 0,
            "offset": offset,
        }
