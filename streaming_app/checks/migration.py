"""Whether a group of Kafka Streams can go to the streams protocol (`migrate check`), and the steps there and back.

The migration is offline (Kafka 4.2 to 4.4): the brokers convert a group only while it has no members, and keep its
committed offsets and nothing else. The log shows some of what counts (`groups.classic`), the brokers some, and nothing
shows the rest: that is "not known". A result is never `ok` for what was not seen. Here are the conditions, as decision
tables: the first one that holds is the case, whose text is in migration.toml.
"""

from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from shlex import quote
from typing import Any, NamedTuple

from offsets_decoder.definitions import load_toml
from streaming_app.checks.result import Result
from streaming_app.groups.group import CLASSIC, STANDBY, WARMUP
from streaming_app.groups.state_rules import EMPTY
from streaming_app.kafka import releases
from streaming_app.kafka.releases import READINESS, REBALANCE_PROTOCOLS, Ability, BrokerRelease
from streaming_app.queries.group_facts import in_force_of
from streaming_app.text import count, first_of

_STATIC = Ability("static members", "4.4", "", "")
_NEWEST_INFO = 11  # the version of SubscriptionInfo that clients write from 3.2 on
_NAMED = 3
_STANDBYS, _SESSION = "streams.num.standby.replicas", "streams.session.timeout.ms"
_LIMITS = {"group.streams.min.session.timeout.ms": "45000", "group.streams.max.standby.replicas": "2"}
"""Kafka's defaults (4.4.0): brokers refuse values of the group beyond their limits."""


class Facts(NamedTuple):
    """What is known of a group and the brokers; without a row of `groups`, of the brokers alone."""

    row: Mapping[str, Any] = {}
    why: str = "no broker was asked: give --bootstrap-server"
    """Why nothing is known of the brokers."""
    brokers: Sequence[BrokerRelease] = ()
    configs: Mapping[int, Mapping[str, str]] = {}
    """The configs of the brokers that could be read, by broker."""
    states: Mapping[str, str] = {}
    group_configs: Mapping[str, Mapping[str, str]] = {}
    """Group -> its configs as a streams group, as far as they could be read."""

    @property
    def members(self) -> Sequence[Mapping[str, Any]]:
        """Its members as of the last rebalance."""
        found: Sequence[Mapping[str, Any]] = self.row["members"] or ()
        return found

    @property
    def told(self) -> str | None:
        """Its state, as its coordinator says."""
        return self.states.get(self.row["group_id"])

    @property
    def versions(self) -> list[int]:
        """The versions of SubscriptionInfo that members write; 0 for bytes that are not known."""
        return [one["client_version"] or 0 for one in self.members]

    @property
    def wanted(self) -> dict[str, tuple[int, str | None, str]]:
        """Config of the group -> what its clients have, its value (None: not read), and what the brokers allow."""
        held = (one for one in self.row["assignments"] or () if one["role"] == STANDBY and one["current"])
        standbys = Counter((one["subtopology_id"], one["partition"]) for one in held)
        clients = {
            _STANDBYS: max(standbys.values(), default=0),
            _SESSION: max((one["session_timeout_ms"] or 0 for one in self.members), default=0),
        }
        limits = _LIMITS | dict(ChainMap(*map(dict, self.configs.values())))
        now = self.group_configs.get(self.row["group_id"], {})
        return {one: (of, now.get(one), in_force_of(one, str(of), limits)) for one, of in clients.items() if of}

    def without(self, ability: Ability) -> list[int]:
        """Return the brokers that lack an ability."""
        return [one.broker_id for one in self.brokers if not one.can(ability)]

    @property
    def refusing(self) -> list[str]:
        """Which brokers take no streams group by their configuration."""
        without_plugin = {one: {**own, releases.DESCRIPTION_PLUGIN: ""} for one, own in self.configs.items()}
        return list(releases.config_gaps(without_plugin))


_Rules = Mapping[str, Sequence[tuple[str, Callable[[Facts], Any]]]]
"""Check -> pairs of a case and its condition."""


def _always(_: Facts) -> bool:
    return True


def _nobody(facts: Facts) -> bool:
    return not facts.members


def _values(config: str) -> Sequence[tuple[str, Callable[[Facts], Any]]]:
    """Return the cases of a setting of the clients that a config of the group replaces."""
    return (
        ("unread", lambda f: f.wanted[config][1] is None),
        ("same", lambda f: f.wanted[config][1] == str(f.wanted[config][0])),
        ("other", _always),
    )


_OF_CLUSTER: _Rules = {
    "brokers": (
        ("unasked", lambda f: not f.brokers),
        ("old", lambda f: f.without(READINESS)),
        ("first", lambda f: any(one.release == "4.2" for one in f.brokers)),
        ("new", _always),
    ),
    releases.STREAMS_VERSION: (
        ("unasked", lambda f: not f.brokers),
        ("disabled", lambda f: releases.without_streams_groups(f.brokers)),
        ("enabled", _always),
    ),
    REBALANCE_PROTOCOLS: (("unread", lambda f: not f.configs), ("refusing", lambda f: f.refusing), ("taking", _always)),
}
_STATE = (
    ("hidden", lambda f: f.brokers and f.told is None),
    ("running", lambda f: f.members or f.told not in {None, EMPTY}),
    ("empty", _always),
)
_OF_CLASSIC: _Rules = {
    "state": _STATE,
    "clients": (
        ("nobody", _nobody),
        ("older", lambda f: any(0 < one < _NEWEST_INFO for one in f.versions)),
        ("unread", lambda f: 0 in f.versions),
        ("recent", _always),
    ),
    "static members": (
        ("nobody", _nobody),
        ("none", lambda f: not any(one["instance_id"] for one in f.members)),
        ("unasked", lambda f: not f.brokers),
        ("refused", lambda f: f.without(_STATIC)),
        ("taken", _always),
    ),
    "standbys": (("none", lambda f: _STANDBYS not in f.wanted), *_values(_STANDBYS)),
    "warm-ups": (
        ("some", lambda f: f.row["probing_rebalance_at"] or any(one["role"] == WARMUP for one in f.row["assignments"])),
        ("state", lambda f: any(one["has_state"] for one in f.row["subtopologies"])),
        ("unknown", _always),
    ),
    "client tags": (
        ("nobody", _nobody),
        ("some", lambda f: any(one["client_tags"] for one in f.members)),
        ("older", lambda f: min(f.versions) < _NEWEST_INFO),
        ("none", _always),
    ),
    "session time-out": (("nobody", lambda f: _SESSION not in f.wanted), *_values(_SESSION)),
    "other settings": (("any", _always),),
    "topology": (("any", _always),),
}
_OF_STREAMS: _Rules = {"protocol": (("streams", _always),), "state": _STATE}


@cache
def _texts() -> Mapping[str, Any]:
    return load_toml(files(__package__ or "") / "migration.toml")


def check_cluster(facts: Facts) -> Iterator[Result]:
    """Yield the results about the brokers."""
    values = {
        "why": facts.why,
        "old": releases.name_brokers(facts.without(READINESS)),
        "first": releases.name_brokers([one.broker_id for one in facts.brokers if one.release == "4.2"]),
        "releases": releases.describe_releases(facts.brokers),
        "disabled": releases.without_streams_groups(facts.brokers),
        "refusing": "; ".join(facts.refusing),
    }
    yield from _results("cluster", _OF_CLUSTER, facts, values)


def check_group(facts: Facts) -> Iterator[Result]:
    """Yield the results about a group: of one with the streams protocol only whether it can go back."""
    yield from _results("group", _OF_CLASSIC if facts.row["protocol"] == CLASSIC else _OF_STREAMS, facts, _shown(facts))


def _results(of: str, rules: _Rules, facts: Facts, values: Mapping[str, Any]) -> Iterator[Result]:
    for check, cases in rules.items():
        case = next(name for name, holds in cases if holds(facts))
        status, text, remedy = (one.format(**values) for one in _texts()[of][check][case])
        yield Result(status, check, text, remedy)


def ways(facts: Facts, server: str) -> dict[str, list[dict[str, Any]]]:
    """Return the `steps` to the streams protocol, unless the group has it, and those of the `way_back`.

    A step has a `text` and `commands`. `server` is the address of the brokers for Kafka's tools.
    """
    values = _shown(facts) | {"server": quote(server)}
    names = ("steps", "way_back") if facts.row["protocol"] == CLASSIC else ("way_back",)
    return {
        name: [
            {
                "text": one["text"].format(**values),
                "commands": [text.format(**values) for text in one.get("commands", ())],
            }
            for one in _texts()[name]
            if values.get(one.get("needs"), True)
        ]
        for name in names
    }


def _shown(facts: Facts) -> dict[str, Any]:
    row, members, wanted = facts.row, facts.members, facts.wanted
    processes = {one["process_id"] or one["member_id"] for one in members}
    tags = sorted({name for one in members for name in dict(one["client_tags"] or ())})
    instances = sorted(one["instance_id"] for one in members if one["instance_id"])
    standbys, session = (wanted.get(name, (0, None, "")) for name in (_STANDBYS, _SESSION))
    set_first = (f"{name}={allowed}" for name, (_, now, allowed) in wanted.items() if now != allowed)
    return {
        "group": quote(row["group_id"]),
        "told": f"its coordinator says {facts.told}" if facts.told else "as of the last rebalance",
        "members": count(len(members), "member"),
        "processes": count(len(processes), "process", "processes"),
        "before_static": releases.name_brokers(facts.without(_STATIC)),
        "configs": ",".join(set_first),
        "tags": first_of(tags, _NAMED),
        "instances": first_of(instances, _NAMED),
        **dict(zip(("standbys", "standbys_now", "standbys_allowed"), standbys, strict=True)),
        **dict(zip(("session", "session_now", "session_allowed"), session, strict=True)),
        "session": session[0] or "45000 by default",
    }
