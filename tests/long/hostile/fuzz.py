"""Random requests of members to a real broker, next to honest groups, and what the job made of them.

A request is a valid heartbeat of a member in some of whose fields, as `schemas/messages` defines them, random values
stand, so that brokers accept some of them. At the end the job has to live, its rows have to equal what the broker
describes, an honest group's row and alert have to come, and nothing may be in quarantine: brokers write no record that
cannot be read.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import GroupError, StreamsGroupHeartbeatRequest
from streaming_app.sandbox.member import SimulatedMember, internal_topic, subtopology, topology
from tests.long.hostile import STORED
from tests.long.hostile.bed import Bed
from tests.support.job_runner import streams_groups
from tests.support.waiting import wait_until

GROUPS, MEMBERS, PROBE_EVERY, KEEP_EVERY = 40, 6, 300.0, 10.0
_TEXTS = ("", "a", "orders-in", "0", "null", STORED, "é" * 200, "x" * 3_000, "(a+)+$", "-1", "🎉", "a,b;c=d", "\x00")
_NUMBERS = (-(2**31), -3, -2, -1, 0, 1, 2, 3, 7, 1_000, 65_535, 2**31 - 1)
_RANGES = {"int8": (-(2**7), 2**7 - 1), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1)}


class Fuzzer:
    """Sends requests; `sent` counts them by what came of them."""

    def __init__(self, client: StreamsGroupClient, seed: int) -> None:
        self._client, self._chance = client, random.Random(seed)  # noqa: S311 - no secret
        self._members: dict[str, list[SimulatedMember]] = {}
        self.sent: Counter[str] = Counter()
        self._fields = {one["name"]: one for one in StreamsGroupHeartbeatRequest._json["fields"]}

    def step(self) -> None:
        """Send one request, mostly of a member that exists."""
        chance, group_id = self._chance, self._group_id()
        members = self._members.setdefault(group_id, [])
        if (len(members) < MEMBERS and chance.random() < 0.3) or not members:
            members.append(SimulatedMember(self._client, group_id, self._topology()))
            self._count(members[-1].join)
            return
        member = chance.choice(members)
        action = chance.choices(
            (member.step, member.join, member.leave, self._delete(group_id), self._random(member), self._push(member)),
            (4, 1, 1, 0.3, 8, 1),
        )[0]
        if (not self._count(action) or action == member.leave) and chance.random() < 0.5:
            members.remove(member)

    def _random(self, member: SimulatedMember) -> Callable[[], object]:
        chance = self._chance
        fields = chance.sample(sorted(self._fields), chance.choice((1, 1, 1, 2, 3, 6)))
        values = {_snake(name): self._value(self._fields[name]) for name in fields if name != "GroupId"}
        if chance.random() < 0.4:
            joins = {"member_epoch": 0, "topology": member.topology, "process_id": "p", "rebalance_timeout_ms": 30_000}
            values = {**joins, "active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "client_tags": [], **values}
        return lambda: member.heartbeat(**values)

    def _push(self, member: SimulatedMember) -> Callable[[], object]:
        return lambda: member.push_description(self._chance.choice((None, 0, 1, -1)))

    def _delete(self, group_id: str) -> Callable[[], object]:
        return lambda: self._client.delete_group(group_id)

    def _count(self, request: Callable[[], object]) -> bool:
        try:
            request()
        except GroupError as error:
            self.sent[error.name] += 1
        except KafkaError as error:
            self.sent[type(error).__name__] += 1
        except (ValueError, TypeError, OverflowError, UnicodeError) as error:  # kafka-python does not encode it
            self.sent[f"not sent: {type(error).__name__}"] += 1
        else:
            self.sent["accepted"] += 1
            return True
        return False

    def _group_id(self) -> str:
        number = self._chance.randrange(GROUPS)
        return f"fuzz-{number}" if number % 3 else f"fuzz-{number}-{STORED}"

    def _topology(self) -> dict[str, Any]:
        chance = self._chance
        parts = [
            subtopology(
                f"{number}",
                source_topics=chance.sample(("orders-in", "gone", "payments-0"), chance.randint(1, 2)),
                source_topic_regex=chance.choice(((), ("orders-.*",), ("(a+)+$",))),
                state_changelog_topics=[internal_topic(f"{number}-changelog", configs={"a": chance.choice(_TEXTS)})],
            )
            for number in range(chance.choice((1, 1, 2, 5)))
        ]
        return topology(*parts, epoch=chance.choice((0, 0, 0, 1, 7)))

    def _value(self, field: dict[str, Any], depth: int = 0) -> Any:
        chance, kind = self._chance, field["type"]
        if "nullableVersions" in field and chance.random() < 0.2:
            return None
        if kind.startswith("[]"):
            one = {**field, "type": kind[2:], "nullableVersions": "0+"}
            one.pop("nullableVersions")
            return [self._value(one, depth + 1) for _ in range(chance.choice((0, 1, 1, 2, 5, 50 if not depth else 3)))]
        if field.get("fields"):
            return {_snake(one["name"]): self._value(one, depth + 1) for one in field["fields"]}
        if kind == "bool":
            return chance.random() < 0.1
        if kind == "string":
            random_text = "".join(chance.choices("abc\u0000\u202e\x1b💥é/\\'\"", k=chance.randint(1, 40)))
            return chance.choice((*_TEXTS, random_text, random_text))
        number = chance.choice((*_NUMBERS, chance.getrandbits(31)))
        least, most = _RANGES.get(kind, (-(2**31), 2**31 - 1))
        return max(least, min(number, most))


def _snake(name: str) -> str:
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name).removeprefix("_")


def fuzz(directory: Path, *, seconds: float, seed: int) -> int:
    """Send requests for so many seconds; print what came of them, and return how many promises were broken."""
    problems = []
    directory.mkdir(parents=True)
    with Bed(directory, probes=3 + int(seconds / PROBE_EVERY)) as bed, bed.memory() as memory:
        print(f"calm: {bed.probe()}, {bed.probe()}", flush=True)
        with bed.attacker() as client:
            fuzzer, began = Fuzzer(client, seed), time.monotonic()
            probed_at = kept_at = began
            while (now := time.monotonic()) - began < seconds and bed.is_alive:
                fuzzer.step()
                if now - kept_at > KEEP_EVERY:
                    kept_at = now
                    bed.keep_members()
                if now - probed_at > PROBE_EVERY:
                    probed_at = now
                    sent = sum(fuzzer.sent.values())
                    print(f"{now - began:.0f} s: {sent:,} requests, {bed.probe()}", flush=True)
        print(f"requests: {dict(fuzzer.sent.most_common())}; most memory: {memory['sum'] / 1e6:,.0f} MB", flush=True)
        if not bed.is_alive:
            problems.append(f"the job has ended: {bed.job.output[-2000:]}")
        elif not wait_until(bed.is_caught_up, 240):
            problems.append("the job has not caught up")
        else:
            if None in (last := bed.probe()):
                problems.append(f"an honest row or alert never came: {last}")
            checked = streams_groups("verify", "--bootstrap-server", bed.server, "--warehouse", bed.warehouse)
            print(checked.stdout[-3000:], checked.stderr[-1000:], flush=True)
            if checked.returncode:
                problems.append("rows differ from the broker's")
        quarantine = bed.query("SELECT error_kind, message, count(*) AS n FROM quarantine GROUP BY 1, 2")
        problems += [f"in quarantine: {row}" for row in quarantine]
        aside = bed.query("SELECT group_id, set_aside_reason AS why FROM groups WHERE set_aside_reason IS NOT NULL")
        problems += [f"set aside: {row}" for row in aside if "group_budget" not in row["why"]]
        print(f"set aside: {aside}", flush=True)
        problems += [line for line in bed.job.output.splitlines() if "Traceback" in line or "failed" in line]
    print("\n".join(problems) or "nothing found", flush=True)
    return len(problems)
