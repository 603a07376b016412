"""Brokers of a cluster that are away during a block: killed, or paused, in which case they do not answer."""

from collections.abc import Iterator
from contextlib import contextmanager

from tenacity import Retrying, retry_if_exception_type, stop_after_delay

from streaming_app.errors import SetupError
from streaming_app.kafka.connection import Admin
from tests.support.kafka_cluster import LocalCluster
from tests.support.waiting import MINUTES, wait_until


def connection(server: str) -> Admin:
    return Admin(bootstrap_servers=server)


def others(cluster: LocalCluster, victim: int) -> str:
    return ",".join(one.bootstrap_server for number, one in cluster.brokers.items() if number != victim)


@contextmanager
def killed(cluster: LocalCluster, victim: int) -> Iterator[None]:
    cluster.brokers[victim].kill()
    try:
        yield
    finally:
        # Meanwhile another process may have used the broker's port for a connection.
        for attempt in Retrying(retry=retry_if_exception_type(SetupError), stop=stop_after_delay(MINUTES)):
            with attempt:
                cluster.start_brokers([victim])


@contextmanager
def paused(cluster: LocalCluster, victim: int) -> Iterator[None]:
    cluster.pause(victim)
    try:
        yield
    finally:
        cluster.resume(victim)
        with connection(cluster.bootstrap_server) as admin:
            assert wait_until(lambda: len(admin.describe_cluster()["brokers"]) == len(cluster.brokers))
