"""The release and the features of each broker, and which facts are unknown because of them.

Brokers do not say their release. The supported versions of `metadata.version` show it. If these are ambiguous, the
supported versions of requests decide: a broker with `unstable.feature.versions.enable` also supports the next release's
metadata (a 4.2 broker with this setting counts as 4.3, which makes no difference here). The values were read from
brokers of 4.1.2, 4.2.1, 4.3.1 and 4.4.0.

Only `fetch` loads kafka-python: commands that read the tables use the other functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from streaming_app.text import count, first_of

if TYPE_CHECKING:
    from streaming_app.kafka.connection import Admin

RELEASE, STREAMS_VERSION, METADATA_VERSION = "release", "streams.version", "metadata.version"
REBALANCE_PROTOCOLS = "group.coordinator.rebalance.protocols"
DESCRIPTION_PLUGIN = "group.streams.topology.description.plugin.class"
OFFSETS_RETENTION, OFFSETS_SWEEP = "offsets.retention.minutes", "offsets.retention.check.interval.ms"
FEATURES = (STREAMS_VERSION, "group.version", METADATA_VERSION)
_SHARE_FETCH, _UPDATE_DESCRIPTION = 78, 93  # keys of requests
_OLDER, _NEWER = "before 4.1", "after 4.4"
_TIMEOUT_MS = 10_000
_NAMED = 5  # brokers in a line
_STREAMS = "streams"


# From the newest release: the least `metadata.version` that its brokers support, and of a request the least version.
_SIGNATURES = (
    (_NEWER, 34, _UPDATE_DESCRIPTION, 0),
    ("4.4", 32, _UPDATE_DESCRIPTION, 0),
    ("4.3", 30, _SHARE_FETCH, 2),
    ("4.2", 28, _SHARE_FETCH, 2),
    ("4.1", 26, _SHARE_FETCH, 0),
)
_ORDER = (_OLDER, *(release for release, *_ in reversed(_SIGNATURES)))


class Ability(NamedTuple):
    """Something that brokers do from a release on, and the fact that is unknown without it."""

    name: str
    since: str
    unknown: str
    reason: str


READINESS = Ability(
    "readiness",
    "4.2",
    "the state of groups with members is Unknown",
    "brokers before 4.2 do not write whether a group is ready",
)
DESCRIPTIONS = Ability(
    "topology descriptions",
    "4.4",
    "there are no topology descriptions",
    "brokers before 4.4 do not ask clients for them",
)
TASK_OFFSETS = Ability(
    "task offsets", "4.4", "the lag of copies is not known", "brokers before 4.4 do not tell what clients report"
)
ABILITIES = (READINESS, DESCRIPTIONS, TASK_OFFSETS)


class BrokerRelease(NamedTuple):
    """The known facts about one broker."""

    broker_id: int
    release: str
    features: Mapping[str, int]
    """The finalized feature levels by name; features that the cluster has not enabled are missing."""

    def can(self, ability: Ability) -> bool:
        """Return whether its release has an ability."""
        return self.release in _ORDER and _ORDER.index(self.release) >= _ORDER.index(ability.since)

    @property
    def shown(self) -> dict[str, int]:
        """The levels of the features that are shown."""
        return {name: self.features[name] for name in FEATURES if name in self.features}

    @property
    def text(self) -> str:
        """Release and features, as text for users."""
        features = [f"{name} {self.features.get(name, 'not enabled')}" for name in FEATURES]
        return ", ".join([f"Kafka {self.release}", *features])


def release_of(metadata: int, requests: Mapping[int, int]) -> str:
    """Return the release of a broker by its highest `metadata.version`, and its highest version of each request."""
    for release, least, key, version in _SIGNATURES:
        if metadata >= least and requests.get(key, -1) >= version:
            return release
    return _OLDER


def fetch(admin: Admin) -> list[BrokerRelease]:
    """Return the releases of the brokers that answer. Raises KafkaError if none does. Needs no ACL."""
    from kafka.errors import KafkaError  # noqa: PLC0415 - see above
    from kafka.protocol.metadata import ApiVersionsRequest  # noqa: PLC0415 - as above

    request = ApiVersionsRequest(min_version=3, client_software_name="streams-groups", client_software_version="1")
    ids = admin.broker_ids()
    answers = admin.send_all([(broker, request) for broker in ids], _TIMEOUT_MS)
    found = [
        _broker(broker, answer.to_dict())
        for broker, answer in zip(ids, answers, strict=True)
        if not isinstance(answer, KafkaError)
    ]
    if answers and not found:
        raise answers[0]
    return found


def _broker(broker: int, answer: Mapping[str, Sequence[Mapping[str, int]]]) -> BrokerRelease:
    requests = {one["api_key"]: one["max_version"] for one in answer["api_keys"]}
    supported = {str(one["name"]): one["max_version"] for one in answer["supported_features"] or ()}
    finalized = {str(one["name"]): one["max_version_level"] for one in answer["finalized_features"] or ()}
    return BrokerRelease(broker, release_of(supported.get(METADATA_VERSION, 0), requests), finalized)


def configs_by_broker(facts: Iterable[tuple[str, str, str]]) -> dict[int, dict[str, str]]:
    """Return the configs by broker; the facts are (id of the broker, name, value)."""
    found: dict[int, dict[str, str]] = {}
    for broker, name, value in facts:
        found.setdefault(int(broker), {})[name] = value
    return found


def config_gaps(configs: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    """Yield what some brokers do not do because of their configuration, with the brokers and the config."""
    refusing = [
        broker
        for broker, values in configs.items()
        if _STREAMS not in [one.strip() for one in values.get(REBALANCE_PROTOCOLS, _STREAMS).split(",")]
    ]
    if refusing:
        yield f"no streams group is taken by {name_brokers(refusing)}: {REBALANCE_PROTOCOLS} has no {_STREAMS}"
    with_plugin = [broker for broker, values in configs.items() if values.get(DESCRIPTION_PLUGIN)]
    without = configs.keys() - set(with_plugin)
    if with_plugin and without:
        yield (
            f"topology descriptions are not stored for groups coordinated by {name_brokers(without)}: "
            f"{DESCRIPTION_PLUGIN} is not set there, and is on {name_brokers(with_plugin)}"
        )


def describe_releases(brokers: Iterable[BrokerRelease]) -> str:
    """Return the releases of all brokers, and the features of the cluster: `Kafka 4.4 (brokers 1, 2), ...`."""
    by_text: dict[str, list[int]] = {}
    for one in brokers:
        by_text.setdefault(one.text, []).append(one.broker_id)
    return "; ".join(f"{text} ({name_brokers(ids)})" for text, ids in sorted(by_text.items()))


def name_brokers(ids: Collection[int]) -> str:
    """Return the names of brokers: `broker 1`, `brokers 1, 2`."""
    noun = "broker" if len(ids) == 1 else "brokers"
    return f"{noun} {first_of(list(map(str, sorted(ids))), _NAMED)}"


def why_unknown(ability: Ability, brokers: Iterable[BrokerRelease]) -> str | None:
    """Return what is unknown because some brokers lack an ability, and why; None if all known brokers have it."""
    lacking = [one for one in brokers if not one.can(ability)]
    if not lacking:
        return None
    named, are = name_brokers([one.broker_id for one in lacking]), "is" if len(lacking) == 1 else "are"
    releases = ", ".join(sorted({one.release for one in lacking}, key=_ORDER.index))
    return f"{ability.unknown}: {ability.reason}, and {named} {are} Kafka {releases}"


def without_streams_groups(brokers: Iterable[BrokerRelease]) -> str | None:
    """Return why the cluster cannot have streams groups; None if it can."""
    known = list(brokers)
    if not known or any(one.features.get(STREAMS_VERSION) for one in known):
        return None
    return f"{count(len(known), 'broker')} without streams groups: the feature {STREAMS_VERSION} is not enabled"
