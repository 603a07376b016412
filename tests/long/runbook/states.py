"""The states of the runbook: what brings each about, and then its advice, followed as it stands.

Each is a generator. It brings the state about and yields the id of the group, None for the job; the alert opens. What
comes then is the advice, after which the alert ends.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError

from bench.bench_harness import repeating
from streaming_app.alerts.catalog import rules
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.member import SimulatedMember, internal_topic, settle, subtopology, topology
from tests.long.bed import in_batches_of
from tests.long.rig import JobRig, Rig
from tests.support.internal_topic import raw_key, write_internal
from tests.support.receivers import Response
from tests.support.waiting import await_topics, wait_until

Steps = Iterator[str | None]
_COMPACTED = {"cleanup.policy": "compact"}
_MANY, _PAUSE = 20_000, 5.0  # records that wait, of which one is taken after so many seconds: it takes hours
_WHY = (r"^(?!  What to do)",)
"""Of `why`: who reads the page need not be sent there."""
_STATE = ("^GROUP .* STATE", " (CURRENT|FAILED|NEVER_STORED) ")
_STATUS = r"^(job|alerts) {4,7}[^ ]"
_ALERT = ("SEVERITY", "RULE", "SUMMARY")
_DESCRIPTION = ("GROUP", "STATE", "TOPOLOGY-DESCRIPTION", "STORED-DESCRIPTION-EPOCH", "FAILED-DESCRIPTION-EPOCH")


class State(NamedTuple):
    rule: str
    play: Callable[[Any], Steps]
    keep: tuple[str, ...] = ()
    """Of the lines of the output, those in which one of these is found; none: all."""
    columns: tuple[str, ...] = ()
    """Of its table; none: all."""
    is_shown: bool = True
    """Whether the page shows its output."""
    ends: bool = True
    """Whether the alert ends soon after the advice was followed, and not when so much time has passed."""
    of_job: bool = False
    """Whether it is about the job, which has a rig of its own: these are played one after the other."""

    @property
    def name(self) -> str:
        return self.play.__name__


STATES: list[State] = []


def state(rule: str, **options: Any) -> Callable[[Callable[[Any], Steps]], Callable[[Any], Steps]]:
    def add(play: Callable[[Any], Steps]) -> Callable[[Any], Steps]:
        STATES.append(State(rule, play, **options))
        return play

    return add


def advised(rule: str, begin: str) -> str:
    """Return the command in the steps of a rule that begins so."""
    steps = " ".join((*(one.text for one in rules()[rule].steps), *rules()[rule].avoid))
    return next(code for code in re.findall(r"`([^`]+)`", steps) if code.startswith(begin))


def kept(rig: Rig, group_id: str, topic: str, partitions: int = 1, **settings: Any) -> SimulatedMember:
    """Return a member that has joined, and stays, of a group that reads this topic, which is created."""
    if not rig.has_topic(topic):
        rig.client.create_topic(topic, partitions)
    rig.keep(member := rig.prepare(group_id, topics=(topic,), **settings))
    return member


def catches_up(rig: Rig, group_id: str, topic: str) -> None:
    """Let another member join, and process this topic to its end."""
    rig.commit(kept(rig, group_id, topic), topic)


def stopped_with_work(rig: Rig, group_id: str, topic: str) -> None:
    """Let a group process a topic, and stop, and then records come."""
    member = kept(rig, group_id, topic, 2)
    rig.commit(member, topic)
    rig.drop(member)
    rig.produce(topic, 10)


# --- Health -----------------------------------------------------------------------------------------------------------


@state("StreamsGroupLosing", keep=_WHY)
def losing(rig: Rig) -> Steps:
    rule, topic = "StreamsGroupLosing", "clicks"
    member = kept(rig, "clickstream-sessions", topic)
    rig.produce(topic, 500)
    rig.commit(member, topic, 120)
    rig.drop(member)
    rig.client.delete_records({TopicPartition(topic, 0): 400})
    yield "clickstream-sessions"
    rig.run(advised(rule, "kafka-configs.sh --alter --entity-type topics"), TOPIC=topic)
    assert "member_left" in rig.run(advised(rule, "streams-groups history"), GROUP_ID="clickstream-sessions")
    rig.run(advised(rule, "kafka-configs.sh --alter --entity-type groups"), GROUP_ID="clickstream-sessions")
    rig.keep(member)
    rig.commit(member, topic, 450)


@state("StreamsGroupDown", keep=_WHY)
def source_topic_missing(rig: Rig) -> Steps:
    member = rig.prepare("fraud-detection", topics=("card-transactions",))
    rig.keep(member, settles=False)
    yield "fraud-detection"
    rig.client.create_topic("card-transactions", 1)
    rig.drop(member)
    rig.produce("card-transactions", 10)
    catches_up(rig, "fraud-detection", "card-transactions")


@state("StreamsGroupDown", is_shown=False)
def stopped_for_good(rig: Rig) -> Steps:
    stopped_with_work(rig, "fax-archive", "faxes")
    yield "fax-archive"
    found = rig.alert("StreamsGroupDown", "fax-archive")
    assert found
    rig.run(advised("StreamsGroupDown", "streams-groups alerts end"), ID=found["alert_id"])


@state("StreamsGroupDown", is_shown=False)
def internal_topic_of_another_size(rig: Rig) -> Steps:
    """A real application whose repartition topic was made by hand; it is reset as the page says."""
    topics = {"phrases": 2, "totals": 2}
    rig.client.create_topic("phrase-count-words-repartition", 1)
    rig.client.create_topic("phrase-count-counted-changelog", 3)
    first = rig.application("phrase-count", "words", topics)
    first.produce(on=True)
    yield "phrase-count"
    first.stop()
    assert wait_until(lambda: rig.state("phrase-count") == "Empty")
    reset = advised("StreamsGroupDown", "kafka-streams-groups.sh --reset-offsets")
    rig.run(f"{reset} {advised('StreamsGroupDown', '--dry-run')}", GROUP_ID="phrase-count")
    rig.run(f"{reset} {advised('StreamsGroupDown', '--delete-all-internal-topics')}", GROUP_ID="phrase-count")
    again = rig.application("phrase-count", "words", topics, "2")
    again.produce(on=True)


@state("StreamsGroupDown", is_shown=False)
def changed_topology(rig: Rig) -> Steps:
    rig.client.create_topic("cancellations", 2)
    stopped_with_work(rig, "booking-totals", "bookings")
    yield "booking-totals"
    changed = rig.prepare("booking-totals", topics=("bookings", "cancellations"))
    with pytest.raises(GroupError, match="Topology updates are not supported yet"):
        changed.join()
    rig.run("kafka-streams-groups.sh --delete --group booking-totals")
    rig.produce("cancellations", 10)
    rig.keep(changed)
    rig.commit(changed, "bookings")
    rig.commit(changed, "cancellations")


@state("StreamsGroupStalled", keep=_WHY)
def stuck_process(rig: Rig) -> Steps:
    member = kept(rig, "shipment-router", "shipments", 2)
    rig.produce("shipments", 40)
    rig.commit(member, "shipments", 12)
    yield "shipment-router"
    rule = "StreamsGroupStalled"
    rig.run(advised(rule, "streams-groups describe GROUP_ID --copies"), GROUP_ID="shipment-router")
    command = advised(rule, "kafka-console-consumer.sh")
    assert "\n24" in f"\n{rig.run(command, TOPIC='shipments', P='0', COMMITTED='12')}"
    rig.run(advised(rule, "kafka-transactions.sh"), TOPIC="shipments", P="0")
    rig.run(f"{advised(rule, 'streams-groups verify')} --bootstrap-server {rig.server}")
    rig.drop(member)
    catches_up(rig, "shipment-router", "shipments")


@state("StreamsGroupStalled", is_shown=False)
def recreated_topic(rig: Rig) -> Steps:
    member = kept(rig, "ticketing", "tickets")
    rig.produce("tickets", 50)
    rig.commit(member, "tickets")
    rig.client.delete_topics(["tickets"])
    assert wait_until(lambda: not rig.has_topic("tickets"))
    rig.client.create_topic("tickets", 1)
    rig.produce("tickets", 5)
    # The broker deleted its offset with the topic; a client goes on with its position.
    rig.commit(member, "tickets", 50)
    yield "ticketing"
    rig.drop(member)
    assert wait_until(lambda: rig.state("ticketing") == "Empty")
    rig.run(advised("StreamsGroupStalled", "kafka-streams-groups.sh --reset"), GROUP_ID="ticketing", TOPIC="tickets")
    catches_up(rig, "ticketing", "tickets")


@state(
    "StreamsGroupBehind",
    columns=("GROUP", "PROCESS", "HOST", "LAG", "LAG-SECONDS", "OFFSET-STATUS", "PARTITIONS"),
)
def too_few_instances(rig: Rig) -> Steps:
    member = kept(rig, "orders-aggregator", "orders", 2, process_id="orders-0")
    rig.produce("orders", _MANY, minutes_old=30)
    offsets = count()

    def go_on() -> None:
        with suppress(KafkaError, GroupError):
            rig.commit(member, "orders", next(offsets))

    with repeating(go_on, _PAUSE):
        yield "orders-aggregator"
    second = kept(rig, "orders-aggregator", "orders", process_id="orders-1")
    for one in (member, second):
        rig.commit(one, "orders")


@state("StreamsGroupUnstable", keep=_WHY, ends=False)
def short_stays(rig: Rig) -> Steps:
    rig.client.create_topic("sessions", 2)
    own = topology(subtopology("0", source_topics=["sessions"]))
    await_topics(rig.client, "session-warm-up", own)  # one that was NotReady is about to be Down, and not Unstable
    member = kept(rig, "session-windows", "sessions")
    rig.commit(member, "sessions")
    for _ in range(3):
        rig.drop(kept(rig, "session-windows", "sessions", instance_id="session-windows-2"))
    yield "session-windows"


@state(
    "StreamsGroupOffsetsRewound",
    columns=("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "OFFSET-STATUS"),
)
def second_application(rig: Rig) -> Steps:
    member = kept(rig, "refund-audit", "refunds")
    rig.produce("refunds", 100)
    rig.commit(member, "refunds", 80)
    known = "SELECT 1 AS n FROM lag WHERE group_id = 'refund-audit' AND committed_offset = 80"
    assert wait_until(lambda: bool(rig.found(known)))
    rig.commit(member, "refunds", 10)
    yield "refund-audit"
    rig.commit(member, "refunds", 100)


# --- What else is observed of groups ----------------------------------------------------------------------------------


def _stateful(group_id: str, topic: str) -> Any:
    changelog = internal_topic(f"{group_id}-totals-changelog", configs=_COMPACTED)
    return subtopology("0", source_topics=[topic], state_changelog_topics=[changelog])


@state("StreamsGroupStandbyBehind", columns=("GROUP", "TASK", "ROLE", "HOST", "PROCESS", "LAG", "END", "REPORTED"))
def slow_standby(rig: Rig) -> Steps:
    rig.client.create_topic("ledger-entries", 1)
    rig.client.configure_group("ledger-totals", {"streams.num.standby.replicas": 1})
    own = _stateful("ledger-totals", "ledger-entries")
    pair = [rig.prepare("ledger-totals", own, process_id=f"ledger-{one}") for one in (0, 1)]
    rig.keep(*pair)
    settle(pair, until=lambda: all(one.settled for one in pair) and any(one.assignment["standby"] for one in pair))
    standby = next(one for one in pair if one.assignment["standby"])

    def report(offset: int) -> None:
        with rig.lock:
            places = {"subtopology_id": "0", "partition": 0}
            standby.heartbeat(
                task_offsets=[{**places, "offset": offset}], task_end_offsets=[{**places, "offset": 90_000}]
            )

    report(12_000)
    yield "ledger-totals"
    report(90_000)


@state("StreamsGroupInternalTopicMisconfigured", keep=("^GROUP .* DIFFERS", "asked for"))
def changelog_that_deletes(rig: Rig) -> Steps:
    rig.client.create_topic("customers", 1)
    rig.keep(rig.prepare("customer-profiles", _stateful("customer-profiles", "customers")))
    topic = "customer-profiles-totals-changelog"
    rig.run(f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config cleanup.policy=delete")
    yield "customer-profiles"
    command = advised("StreamsGroupInternalTopicMisconfigured", "kafka-configs.sh")
    rig.run(command, TOPIC=topic)


@state(
    "StreamsGroupMembersStale",
    columns=("GROUP", "MEMBER", "PROCESS", "MEMBER-EPOCH", "MEMBER-STATE", "TOPOLOGY-EPOCH", "ASSIGNMENTS"),
)
def one_stale_member(rig: Rig) -> Steps:
    kept(rig, "price-feed", "prices", epoch=2, process_id="prices-1")
    stale = kept(rig, "price-feed", "prices", epoch=1, process_id="prices-0")
    yield "price-feed"
    rig.drop(stale)


# --- Topology descriptions --------------------------------------------------------------------------------------------


@state(
    "StreamsGroupUnsolicitedDescription",
    keep=_STATE,
    columns=("GROUP", "STATE", "TOPOLOGY-DESCRIPTION", "UNSOLICITED-PUSHES"),
    ends=False,
)
def pushed_twice(rig: Rig) -> Steps:
    member = kept(rig, "view-counts", "page-views")
    _push(rig, member)
    _push(rig, member)
    yield "view-counts"
    command = advised("StreamsGroupUnsolicitedDescription", "kafka-streams-groups.sh")
    assert "page-views" in rig.run(command, GROUP_ID="view-counts")


def _push(rig: Rig, member: Any) -> None:
    with rig.lock:
        member.push_description()


@state("StreamsGroupDescriptionFailed", keep=_STATE, columns=_DESCRIPTION)
def description_refused(rig: Rig) -> Steps:
    """A real application, whose description the plugin refuses for good."""
    topics = {"trades": 1, "matched-trades": 1}
    refused = rig.refuse("trade-matching")
    first = rig.application("trade-matching", "filter", topics)
    yield "trade-matching"
    log = first.log_file.read_text("utf-8", "replace")
    assert re.search("Topology description push failed with.*the description is too large", log, re.DOTALL)
    refused.unlink()
    first.stop()
    assert wait_until(lambda: rig.state("trade-matching") == "Empty")
    rig.run(advised("StreamsGroupDescriptionFailed", "kafka-streams-groups.sh --delete"), GROUP_ID="trade-matching")
    rig.application("trade-matching", "filter", topics, "2")


@state("StreamsGroupDescriptionMissing", keep=_STATE, columns=_DESCRIPTION)
def never_pushed(rig: Rig) -> Steps:
    member = kept(rig, "visit-counts", "visits")
    yield "visit-counts"
    _push(rig, member)


# --- The job ---------------------------------------------------------------------------------------------------------


@state(
    "StreamsGroupSetAside",
    of_job=True,
    keep=(_STATUS, "^GROUP", "^tag-abuse"),
    columns=("GROUP", "SINCE", "HOST", "REASON"),
)
def too_many_members(rig: JobRig) -> Steps:
    group_id, topic = "tag-abuse", "events"
    members = [rig.prepare(group_id, topics=(topic,)) for _ in range(6)]
    rig.keep(*members)
    yield group_id
    rig.job.close()
    rig.config["group_budget"] = {"members": 50}
    rig.start_job()
    rig.settle()
    rig.run(advised("StreamsGroupSetAside", "streams-groups status --release"), GROUP_ID=group_id)


@state("StreamsGroupsNotificationsFailing", of_job=True, keep=("^failed",))
def password_changed(rig: JobRig) -> Steps:
    rig.receiver.default = Response(status=401, body=b"unknown token")
    rig.keep(rig.prepare("mailer", topics=("no-such-topic",)), settles=False)
    yield None
    rig.token.write_text("new-token", "utf-8")
    rig.receiver.default = Response()


@state("StreamsGroupsUndecodableRecords", of_job=True, keep=(_STATUS, "^type 99"), ends=False)
def record_of_a_newer_release(rig: JobRig) -> Steps:
    write_internal(rig.server, [(raw_key(99, b"events-by-minute"), b"\0\1")])
    yield None
    rig.run(advised("StreamsGroupsUndecodableRecords", "streams-groups verify"), **{"HOST:PORT": rig.server})


@state("StreamsGroupsJobStopped", of_job=True, keep=(_STATUS, "^SEVERITY", "StreamsGroupsJobStopped"), columns=_ALERT)
def no_broker_answers(rig: JobRig) -> Steps:
    rig.broker.kill()
    yield None
    rig.broker.start()


@state(
    "StreamsGroupsDiskAlmostFull",
    of_job=True,
    keep=(_STATUS, "^SEVERITY", "StreamsGroupsDiskAlmostFull"),
    columns=_ALERT,
)
def disk_almost_full(rig: JobRig) -> Steps:
    rig.disk.fill(leave=100 << 20)
    yield None
    rig.disk.free()


@state("StreamsGroupsJobBehind", of_job=True, keep=(_STATUS, "^SEVERITY", "StreamsGroupsJobBehind"), columns=_ALERT)
def burst_of_records(rig: JobRig) -> Steps:
    member = kept(rig, "burst-of-records", "burst")
    rig.job.close()
    rig.start_job(setup=in_batches_of(5))
    rig.settle()
    for _ in range(600):
        rig.commit(member, "burst", 0)
    yield None
