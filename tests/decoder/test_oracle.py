"""The decoder against Kafka's own classes: we decode their bytes to their JSON, and they read the bytes we encode.

The jars are those of the broker. A jar that cannot be downloaded is an error, never a skip. ORACLE_MESSAGES is the
number of random messages for each version of each record (in 4.4.0; a fifth of it in other releases).
"""

# ruff: noqa: S311 - a seeded Random is what makes a failure reproducible

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from offsets_decoder import DecodeError, decode, decode_lines, definitions, to_json
from tests.decoder.random_records import VARIANTS, Variant, corrupt, random_kafka_json, random_record, variant_id
from tests.support.conformance import read_schemas, record_types
from tests.support.encode import encode
from tests.support.ivy import resolve
from tests.support.kafka_oracle import Oracle

Release = tuple[str, dict[str, dict[str, Any]], Oracle]
OLDEST, NEWEST = "4.0.1", "4.4.0"
RELEASES = [OLDEST, "4.1.2", "4.2.1", "4.3.1", NEWEST]
MESSAGES = int(os.environ.get("ORACLE_MESSAGES", "50"))
OLDER_ONLY = 9  # its classes were removed in 4.1
EVERY_VARIANT = pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)


def jars_of(release: str) -> list[Path]:
    return resolve(f"org.apache.kafka:kafka-group-coordinator:{release}")


@pytest.fixture(scope="module")
def oracles() -> Iterator[Callable[[str], Oracle]]:
    """Returns the classes of a release, in a JVM that all tests of them share."""
    with ExitStack() as running:
        yield cache(lambda release: running.enter_context(closing(Oracle(jars_of(release)))))


@pytest.fixture
def kafka(oracles: Callable[[str], Oracle]) -> Oracle:
    """The classes of the newest release."""
    return oracles(NEWEST)


@pytest.fixture
def writer(oracles: Callable[[str], Oracle], variant: Variant) -> Oracle:
    """The newest classes that write the variant: the newest release does not have all layouts."""
    return oracles(OLDEST if is_older(variant) else NEWEST)


def is_older(variant: Variant) -> bool:
    return variant[2] is not None or variant[0] == OLDER_ONLY


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest, oracles: Callable[[str], Oracle]) -> Release:
    """A release: its version, its schemas, and its classes."""
    jar = next(jar for jar in jars_of(request.param) if jar.name.startswith("kafka-group-coordinator-4"))
    return request.param, read_schemas(jar), oracles(request.param)


@pytest.mark.parametrize("record_type", [number for number in range(24) if number != 18])
def test_the_bytes_of_every_release_decode_to_the_json_it_prints(release: Release, record_type: int) -> None:
    name, schemas_of_release, oracle = release
    base = definitions.records()[record_type].name
    if not any(record_type in record_types(s) for n, s in schemas_of_release.items() if n.endswith("Key")):
        assert not expected_in(record_type, name)
        return
    key_schema, value_schema = schemas_of_release[f"{base}Key"], schemas_of_release[f"{base}Value"]
    random = Random(f"{name} {record_type}")
    count = MESSAGES if name == NEWEST else MESSAGES // 5
    cases = [version for version in definitions.Versions.parse(value_schema["validVersions"]) for _ in range(count)]
    for version in cases:
        key_version = 0 if "apiKey" in key_schema else record_type  # until 4.0 the type was the version of the key
        key, key_json = oracle.bytes_of(f"{base}Key", key_version, random_kafka_json(random, key_schema, key_version))
        value, value_json = oracle.bytes_of(f"{base}Value", version, random_kafka_json(random, value_schema, version))
        record = decode(record_type.to_bytes(2, "big") + key[2:], value)
        printed = to_json(record)
        assert printed["key"] == {"type": record_type, "data": key_json}
        assert printed["value"] == {"version": version, "data": value_json}
        assert list(printed["value"]["data"]) == list(value_json)
        assert (record.drift, record.layout) == (False, "4.0" if name < "4.1" and record_type in {11, 15} else None)
    assert cases


def expected_in(record_type: int, release: str) -> bool:
    """Return whether a release has classes for the record type, according to the definitions."""
    if record_type == 0:
        return release >= "4.1"  # earlier, types 0 and 1 shared their classes
    definition = definitions.records()[record_type]
    since, until = definition.since, definition.until
    return (since < "4" or since <= release) and (not until or release.startswith(until))


@EVERY_VARIANT
def test_encoded_bytes_are_read_by_kafka_and_written_by_it_byte_for_byte(writer: Oracle, variant: Variant) -> None:
    number, version, layout = variant
    name = definitions.records()[number].name
    key_version = number if is_older(variant) else 0
    random = Random(variant_id(variant))
    for _ in range(MESSAGES):
        key, value = encode(number, *random_record(random, variant), version=version, layout=layout)
        printed = to_json(decode(key, value))
        key_json, value_json = printed["key"]["data"], printed["value"]["data"]
        assert writer.json_of(f"{name}Key", key_version, key[2:]) == key_json
        assert writer.json_of(f"{name}Value", version, value[2:]) == value_json
        assert writer.bytes_of(f"{name}Key", key_version, key_json) == (
            key_version.to_bytes(2, "big") + key[2:],
            key_json,
        )
        assert writer.bytes_of(f"{name}Value", version, value_json) == (value, value_json)


@EVERY_VARIANT
def test_corrupted_bytes_that_decode_are_read_the_same_by_kafka(writer: Oracle, variant: Variant) -> None:
    number, version, layout = variant
    name = f"{definitions.records()[number].name}Value"
    random = Random(f"corrupt {variant_id(variant)}")
    decoded = 0
    for _ in range(4 * MESSAGES):
        key, value = encode(number, *random_record(random, variant, max_length=5), version=version, layout=layout)
        corrupted = corrupt(random, value)
        try:
            record = decode(key, corrupted)
        except DecodeError:
            continue
        if (record.value_version, record.layout) == (version, layout):
            decoded += 1
            assert writer.json_of(name, version, corrupted[2:]) == to_json(record)["value"]["data"]
    assert decoded > 0


@EVERY_VARIANT
def test_lines_of_the_console_consumer_are_decoded_to_the_last_byte(kafka: Oracle, variant: Variant) -> None:
    random = Random(f"escaped {variant_id(variant)}")
    samples = [random_record(random, variant) for _ in range(MESSAGES // 5)]
    records = [encode(variant[0], *fields, version=variant[1], layout=variant[2]) for fields in samples]
    lines = [f"{kafka.text_of(key)}\t{kafka.text_of(value)}\n" for key, value in records]
    assert list(decode_lines(lines)) == [(to_json(decode(key, value)), True) for key, value in records]
