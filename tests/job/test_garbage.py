"""Full collections leave out what has survived one, and once an hour they do not."""

import gc
import weakref

from streaming_app.job.garbage import leave_out_old_objects


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_an_old_object_is_collected_only_by_the_collection_of_each_hour() -> None:
    now = 0.0
    callback = leave_out_old_objects(lambda: now)
    try:
        node = Node()
        old = weakref.ref(node)
        gc.collect()
        del node
        young = weakref.ref(Node())
        gc.collect()
        assert (old() is None, young()) == (False, None)
        now = 3_600.0
        gc.collect()
        assert old() is None
    finally:
        gc.callbacks.remove(callback)
        gc.unfreeze()
