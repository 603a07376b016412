"""Full collections leave out what has survived one, and once an hour they do not."""

import gc
import weakref

from streaming_app.job.garbage import old_objects_left_out


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_an_old_object_is_collected_only_by_the_collection_of_each_hour() -> None:
    now = 0.0
    with old_objects_left_out(lambda: now):
        old = weakref.ref(node := Node())
        gc.collect()
        del node
        young = weakref.ref(Node())
        gc.collect()
        assert (old() is None, young()) == (False, None)
        now = 3_600.0
        gc.collect()
        assert old() is None
    assert gc.get_freeze_count() == 0
