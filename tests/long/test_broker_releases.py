"""What real brokers of every release say of themselves, and what `check` says of them."""

from collections.abc import Callable, Mapping

import pytest

from streaming_app.checks.brokers import check_brokers
from streaming_app.checks.result import OK, WARNING
from streaming_app.kafka.connection import Admin
from streaming_app.kafka.fact_requests import features
from streaming_app.kafka.releases import ABILITIES, READINESS, fetch
from streaming_app.sandbox.broker import LocalBroker
from tests.kafka.test_releases import ON

pytestmark = pytest.mark.broker
STABLE_ONLY = {"unstable.api.versions.enable": "false", "unstable.feature.versions.enable": "false"}


@pytest.mark.parametrize(
    ("version", "properties", "release", "abilities", "metadata"),
    [
        ("4.1.2", {}, "4.1", (), 29),
        ("4.2.1", STABLE_ONLY, "4.2", (READINESS,), 29),
        ("4.4.0", {}, "4.4", ABILITIES, 33),
    ],
)
def test_a_broker_of_each_release_is_known_and_what_it_cannot_do_is_in_check(
    start_broker: Callable[..., LocalBroker],
    version: str,
    properties: Mapping[str, str],
    release: str,
    abilities: tuple[object, ...],
    metadata: int,
) -> None:
    client_properties = {"bootstrap.servers": start_broker(version=version, properties=properties).bootstrap_server}
    shown = {**ON, "metadata.version": metadata}
    with Admin.of(client_properties) as admin:
        (found,) = fetch(admin)
        assert (found.broker_id, found.release, found.shown) == (1, release, shown)
        assert tuple(one for one in ABILITIES if found.can(one)) == abilities
        stored = {fact.name: fact.value for fact in features(admin)}
        assert stored == {"release": release, **{name: str(value) for name, value in shown.items()}}
    results = list(check_brokers(client_properties, "__consumer_offsets"))
    line = next(result.text for result in results if result.check == "broker 1")
    assert line.endswith(", ".join((f"Kafka {release}", *(f"{name} {level}" for name, level in shown.items()))))
    statuses = [result.status for result in results if result.check == "Kafka release"]
    assert statuses == ([WARNING] * (len(ABILITIES) - len(abilities)) or [OK])
