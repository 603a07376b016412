"""Threads of the product do not keep the process from ending, whatever they wait for."""

import threading
from pathlib import Path

import pytest

import streaming_app
from streaming_app.threads import in_parallel


def test_results_are_in_the_order_of_the_items_and_at_most_so_many_run_at_a_time() -> None:
    both, most, running = threading.Barrier(2), 0, 0
    lock = threading.Lock()

    def call(item: int) -> int:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        both.wait(300)
        with lock:
            running -= 1
        return -item

    assert in_parallel(call, range(6), 2) == [-item for item in range(6)]
    assert most == 2
    assert in_parallel(call, [], 2) == []


def test_after_an_error_no_call_begins_and_the_error_of_the_first_item_is_raised_once_none_runs() -> None:
    begun, failed = list[int](), threading.Event()

    def call(item: int) -> None:
        begun.append(item)
        if item == 0:
            failed.wait(300)
        failed.set()
        raise ValueError(item)

    with pytest.raises(ValueError, match=r"^0$"):
        in_parallel(call, range(50), 2)
    assert begun == [0, 1]


def test_no_module_has_threads_for_which_python_waits_at_its_exit() -> None:
    for file in Path(streaming_app.__path__[0]).rglob("*.py"):
        text = file.read_text("utf-8")
        assert "import ThreadPoolExecutor" not in text, file
        assert text.count("threading.Thread(") == text.count("daemon=True"), file
