"""Kafka's own classes judge the decoder: their bytes must be their JSON here, and our bytes must be read by them.

The jars are those of the broker. A jar that cannot be had is an error, never a skip. ORACLE_MESSAGES says how many
random messages there are for each version of each record (4.4.0; a fifth of it for other releases).
"""

# ruff: noqa: S311 - a seeded Random is what makes a failure come back

import os
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import schemas
from offsets_decoder import DecodeError, decode, decode_lines, encode, to_json
from schemas.conformance import kafka_schemas, record_types
from streaming_app.local.jars import resolve
from tests.decoder.kafka_oracle import Oracle, Refused
from tests.decoder.random_records import KINDS, Kind, damaged, kind_name, random_kafka_json, random_record

Release = tuple[str, dict[str, dict[str, Any]], Oracle]
OLDEST, NEWEST = "4.0.1", "4.4.0"
RELEASES = [OLDEST, "4.1.2", "4.2.1", "4.3.1", NEWEST]
MESSAGES = int(os.environ.get("ORACLE_MESSAGES", "50"))
OLDER_ONLY = 9  # its classes are gone since 4.1
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=kind_name)


@pytest.fixture(scope="module")
def oracles() -> Iterator[dict[str, Oracle]]:
    """The classes of the newest release, and those of the one that wrote what it does not."""
    started = {name: Oracle(resolve(f"org.apache.kafka:kafka-group-coordinator:{name}")) for name in (OLDEST, NEWEST)}
    yield started
    for oracle in started.values():
        oracle.close()


@pytest.fixture
def kafka(oracles: dict[str, Oracle]) -> Oracle:
    """The newest release's classes."""
    return oracles[NEWEST]


@pytest.fixture
def writer(oracles: dict[str, Oracle], kind: Kind) -> Oracle:
    """The newest classes that write a kind of record."""
    return oracles[OLDEST if is_older(kind) else NEWEST]


def is_older(kind: Kind) -> bool:
    return kind[2] is not None or kind[0] == OLDER_ONLY


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> Iterator[Release]:
    """A release: its name, its schemas, and its classes in a JVM of their own."""
    jars = resolve(f"org.apache.kafka:kafka-group-coordinator:{request.param}")
    oracle = Oracle(jars)
    jar = next(jar for jar in jars if jar.name.startswith("kafka-group-coordinator-4"))
    yield request.param, kafka_schemas(jar), oracle
    oracle.close()


def kafka_version(key_schema: dict[str, Any], record_type: int) -> int:
    """The version to write a key in: until 4.0 the record type was the key's version."""
    return 0 if "apiKey" in key_schema else record_type


@pytest.mark.parametrize("record_type", [number for number in range(24) if number != 18])
def test_the_bytes_of_every_release_decode_to_the_json_it_prints(release: Release, record_type: int) -> None:
    name, schemas_of_release, oracle = release
    base = schemas.records()[record_type].name
    if not any(record_type in record_types(s) for n, s in schemas_of_release.items() if n.endswith("Key")):
        assert not expected_in(record_type, name)
        return
    key_schema, value_schema = schemas_of_release[f"{base}Key"], schemas_of_release[f"{base}Value"]
    random = Random(f"{name} {record_type}")
    count = MESSAGES if name == NEWEST else MESSAGES // 5
    cases = [version for version in schemas.Versions.parse(value_schema["validVersions"]) for _ in range(count)]

    for version in cases:
        key_version = kafka_version(key_schema, record_type)
        key, key_json = oracle.bytes_of(f"{base}Key", key_version, random_kafka_json(random, key_schema, key_version))
        value, value_json = oracle.bytes_of(f"{base}Value", version, random_kafka_json(random, value_schema, version))
        record = decode(record_type.to_bytes(2, "big") + key[2:], value)

        printed = to_json(record)

        assert printed["key"] == {"type": record_type, "data": key_json}
        assert printed["value"] == {"version": version, "data": value_json}
        assert list(printed["value"]["data"]) == list(value_json)
        assert (record.drift, record.layout) == (False, "4.0" if name < "4.1" and record_type in {11, 15} else None)
    assert cases


def expected_in(record_type: int, release: Release) -> bool:
    """Whether a release has classes for the record type, by what the definitions say."""
    if record_type == 0:
        return release >= "4.1"  # before, types 0 and 1 shared their classes
    definition = schemas.records()[record_type]
    since, until = definition.since, definition.until
    return (since < "4" or since <= release) and (not until or release.startswith(until))


@EVERY_KIND
def test_bytes_built_here_are_read_by_kafka_and_written_by_it_byte_for_byte(writer: Oracle, kind: Kind) -> None:
    number, version, layout = kind
    name = schemas.records()[number].name
    key_version = number if is_older(kind) else 0
    random = Random(kind_name(kind))

    for _ in range(MESSAGES):
        key, value = encode(number, *random_record(random, kind), version=version, layout=layout)
        printed = to_json(decode(key, value))
        key_json, value_json = printed["key"]["data"], printed["value"]["data"]

        assert writer.json_of(f"{name}Key", key_version, key[2:]) == key_json
        assert writer.json_of(f"{name}Value", version, value[2:]) == value_json
        assert writer.bytes_of(f"{name}Key", key_version, key_json) == (
            key_version.to_bytes(2, "big") + key[2:],
            key_json,
        )
        assert writer.bytes_of(f"{name}Value", version, value_json) == (value, value_json)


@EVERY_KIND
def test_damaged_bytes_that_are_taken_here_mean_the_same_to_kafka(writer: Oracle, kind: Kind) -> None:
    number, version, layout = kind
    name = f"{schemas.records()[number].name}Value"
    random = Random(f"damaged {kind_name(kind)}")
    taken = 0

    for _ in range(4 * MESSAGES):
        key, value = encode(number, *random_record(random, kind, longest=5), version=version, layout=layout)
        broken = damaged(random, value)
        try:
            record = decode(key, broken)
        except DecodeError:
            continue
        if (record.value_version, record.layout) == (version, layout):
            taken += 1
            assert writer.json_of(name, version, broken[2:]) == to_json(record)["value"]["data"]
    assert taken > 0


@EVERY_KIND
def test_lines_of_the_console_consumer_are_read_to_the_last_byte(kafka: Oracle, kind: Kind) -> None:
    random = Random(f"escaped {kind_name(kind)}")
    made = [random_record(random, kind) for _ in range(MESSAGES // 5)]
    records = [encode(kind[0], *fields, version=kind[1], layout=kind[2]) for fields in made]

    lines = [f"{kafka.text_of(key)}\t{kafka.text_of(value)}\n" for key, value in records]

    assert list(decode_lines(lines)) == [(to_json(decode(key, value)), True) for key, value in records]


def test_kafka_refuses_what_it_cannot_read_so_that_the_oracle_can_fail(kafka: Oracle) -> None:
    with pytest.raises(Refused):
        kafka.json_of("StreamsGroupMetadataValue", 0, b"\0\0")
