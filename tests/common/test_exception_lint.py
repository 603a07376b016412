"""The lint of `make lint` for broad exceptions finds each form of them."""

import pytest

from tests.exception_lint import find, find_calls

CAUGHT = (
    "_REFUSED = (pa.ArrowException, ValueError)\ndef pull(rows):\n    try:\n        {0}\n    except {1}:\n        {2}\n"
)
SUPPRESSED = "class Reader:\n    def pull(self, rows):\n        with suppress({1}):\n            {0}\n"
LOOP = "for row in rows: print(row)"


@pytest.mark.parametrize(
    ("source", "places"),
    [
        (CAUGHT.format("print()", "Exception as error", "return"), ["pull"]),
        (CAUGHT.format("print()", "(KeyError, MemoryError)", "return"), ["pull"]),
        (CAUGHT.format("print()", "_REFUSED", "return"), ["pull"]),
        (CAUGHT.format("print()", "", "return"), ["pull"]),
        (CAUGHT.format(LOOP, "OSError", "return"), ["pull"]),
        (CAUGHT.format("yield", "OSError", "return"), ["pull"]),
        (SUPPRESSED.format("print()", "BaseException"), ["Reader.pull"]),
        (SUPPRESSED.format("print([*(one for one in rows)])", "OSError"), ["Reader.pull"]),
        (CAUGHT.format("print()", "OSError", "return"), []),
        (CAUGHT.format(LOOP, "KeyError", "return"), []),
        (CAUGHT.format(LOOP, "Exception", "raise"), []),
    ],
)
def test_broad_exceptions_are_found_by_their_place(source: str, places: list[str]) -> None:
    assert [place for place, _ in find(source)] == places


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("class A:\n    def b(self):\n        return json.loads(self.file.read_text())\n", ["A.b", "A.b"]),
        ("def a():\n    def b():\n        write_deltalake(target)\n", ["a.b"]),
        ("def a(text):\n    return text.replace('a', 'b')\n", []),
    ],
)
def test_calls_that_can_fail_are_found_by_their_place(source: str, places: list[str]) -> None:
    assert [place for place, _ in find_calls(source)] == places
