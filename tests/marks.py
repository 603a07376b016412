"""Marks every test by what it needs: `make test-fast` leaves out what starts a broker, Spark, JVM or browser,
and what takes long: more than half a second of processor time.

A test that starts one of these itself, without a fixture, carries the mark in its module.
"""

import pytest

NEEDED_BY_FIXTURE = {
    "broker": "broker",
    "start_broker": "broker",
    "three_brokers": "broker",
    "spark": "spark",
    "oracles": "java",
    "kafka_reason": "java",
    "kafka_jar": "java",
    "jars": "java",
    "release": "java",
    "chromium": "browser",
    "sample": "slow",
    "begun": "slow",
}
"""Fixture to mark: a test that uses the fixture, directly or through another one, needs what the mark says.

Jars need a JVM where they were not fetched yet. A page on a warehouse of its own, and each write that the next job
overhauls, take half a second of processor time.
"""
START_JVMS = frozenset({"broker", "spark", "java"})
"""The marks of tests that start JVMs."""


def add_marks(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if mark := NEEDED_BY_FIXTURE.get(fixture):
                item.add_marker(mark)
