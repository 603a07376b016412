"""The states of the runbook that are about the job, in a rig of its own: one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.long.hostile.requests import raw_key, write_internal
from tests.long.runbook.rig import JobRig
from tests.long.runbook.states import State, Steps, advised
from tests.support.receivers import Response

JOB_STATES: list[State] = []
_STATUS = r"^(job|alerts) {4,7}[^ ]"
_ALERT = ("SEVERITY", "RULE", "SUMMARY")


def job_state(rule: str, **options: Any) -> Callable[[Callable[[JobRig], Steps]], Callable[[JobRig], Steps]]:
    """Add a state of the job, which has a rig of its own; they are played one after the other."""

    def add(play: Callable[[JobRig], Steps]) -> Callable[[JobRig], Steps]:
        JOB_STATES.append(State(rule, play, **options))
        return play

    return add


@job_state("StreamsGroupSetAside", keep=(_STATUS, "^GROUP", "^tag-abuse"), columns=("GROUP", "SINCE", "HOST", "REASON"))
def too_many_members(rig: JobRig) -> Steps:
    group_id, topic = "tag-abuse", "events"
    members = [rig.prepare(group_id, topics=(topic,)) for _ in range(6)]
    rig.keep(*members)
    yield group_id
    rig.stop_job()
    rig.config["group_budget"] = {"members": 50}
    rig.start_job()
    rig.await_caught_up()
    rig.run(advised("StreamsGroupSetAside", "streams-groups status --release"), GROUP_ID=group_id)


@job_state("StreamsGroupsNotificationsFailing", keep=("^failed",))
def password_changed(rig: JobRig) -> Steps:
    rig.receiver.default = Response(status=401, body=b"unknown token")
    with rig.lock:
        (member := rig.prepare("mailer", topics=("no-such-topic",))).join()
    rig.keep_as_it_is(member)
    yield None
    rig.token.write_text("new-token", "utf-8")
    rig.receiver.default = Response()


@job_state("StreamsGroupsUndecodableRecords", keep=(_STATUS, "^GROUP.*ERROR", "UnknownRecordType"), ends=False)
def record_of_a_newer_release(rig: JobRig) -> Steps:
    write_internal(rig.server, [(raw_key(99, b"events-by-minute"), b"\0\1")])
    yield None
    rig.run(advised("StreamsGroupsUndecodableRecords", "streams-groups verify"), **{"HOST:PORT": rig.server})


@job_state("StreamsGroupsJobStopped", keep=(_STATUS, "^SEVERITY", "StreamsGroupsJobStopped"), columns=_ALERT)
def no_broker_answers(rig: JobRig) -> Steps:
    rig.broker.kill()
    yield None
    rig.broker.start()


@job_state("StreamsGroupsDiskAlmostFull", keep=(_STATUS, "^SEVERITY", "StreamsGroupsDiskAlmostFull"), columns=_ALERT)
def disk_almost_full(rig: JobRig) -> Steps:
    rig.disk.fill(leave=100 << 20)
    yield None
    rig.disk.free()


@job_state("StreamsGroupsJobBehind", keep=(_STATUS, "^SEVERITY", "StreamsGroupsJobBehind"), columns=_ALERT)
def burst_of_records(rig: JobRig) -> Steps:
    rig.client.create_topic("burst", 1)
    rig.keep(member := rig.prepare("burst-of-records", topics=("burst",)))
    rig.stop_job()
    rig.start_job("--max-offsets-per-trigger", "5")
    rig.await_caught_up()
    for _ in range(600):
        rig.commit(member, "burst", 0)
    yield None
