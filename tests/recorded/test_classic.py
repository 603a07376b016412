"""The folded log of a real application with the classic protocol, compared with what the application said.

`tests/relations` reads the log in other batches, compacted, and with other names.
"""

from collections import Counter

from tests.recorded.record import read
from tests.recorded.record_classic import FILE
from tests.support.classic_application import row_of, threads_of_row


def test_the_threads_and_tasks_of_the_row_are_what_the_application_said() -> None:
    records, said = read(FILE)
    row, events = row_of(records)
    assert row
    threads = {one["name"]: (one["process_id"], one["active"], one["standby"]) for one in said}
    assert threads_of_row(row) == threads
    assert (len(threads), row["undecoded_members"], row["tasks_moving"]) == (4, 0, False)
    kinds = Counter(event["kind"] for event in events)
    assert (kinds["member_joined"], kinds["member_left"]) == (8, 4)  # two were killed, and two were stopped
