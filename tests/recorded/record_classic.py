"""Records the log of a real application with the classic protocol, in `classic-<version>.jsonl.gz` next to this.

    python -m tests.recorded.record_classic

The last line has what the application said of its threads after the last record.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from tests.recorded.record import write
from tests.support.classic_application import PROPERTIES, ClassicGroup, threads_of
from tests.support.ivy import broker_jars
from tests.support.offsets_log import read_log
from tests.support.streams_application import StreamsApplication

FILE = Path(__file__).with_name(f"classic-{KAFKA_VERSION}.jsonl.gz")
_TOPICS = ("orders", "customers", "regions")


def record() -> None:
    """Start two instances, kill one and start it again, stop and start the other one, and write the log."""
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        class_path = broker_jars(KAFKA_VERSION)
        broker = running.enter_context(LocalBroker(directory / "broker", version=KAFKA_VERSION, class_path=class_path))
        server = broker.bootstrap_server
        with StreamsGroupClient(server) as client:
            for topic in _TOPICS:
                client.create_topic(topic, 2)
        applications = [
            running.enter_context(
                StreamsApplication(server, directory / name, "enriched", "join", _TOPICS, properties=PROPERTIES)
            )
            for name in ("one", "two")
        ]
        both = ClassicGroup(server, applications, threads=4, active=4, standbys=4)
        applications[0].produce(on=True)
        both.settled()
        applications[1].kill()
        ClassicGroup(server, applications[:1], threads=2, active=4, standbys=0).settled()
        applications[1].start()
        before, _ = both.settled()
        applications[0].stop()
        applications[0].start()
        row, _ = both.settled(lambda row: row["group_epoch"] > before["group_epoch"])
        threads = [
            {"name": name, "process_id": process, "active": active, "standby": standby}
            for name, (process, active, standby) in threads_of(applications).items()
        ]
        log = [one for one in read_log(server, "enriched") if one.record_type == 2]
        write(FILE, [one for one in log if one.offset <= row["last_offset"]], threads)


if __name__ == "__main__":
    record()
