from typing import Any

import pytest

from schemas import DefinitionError, Field, RecordDefinition, Versions, document, record, records
from schemas.records_loader import _record


def definition(**changes: object) -> RecordDefinition:
    data = {
        "type": 99,
        "name": "Made",
        "since": "9.9",
        "kip": 1,
        "about": "Made up.",
        "key": {"fields": [{"name": "GroupId", "type": "string", "about": "The group."}]},
        "value": {"versions": "0-1", "flexible": "1+", "fields": []},
    }
    return _record(data | changes, 99)


def all_fields() -> list[tuple[str, Field]]:
    return [
        (f"{made.type} {field.name}", field)
        for made in records().values()
        for fields in (made.key.fields, made.value.fields, *made.structs.values())
        for field in fields
    ]


FIELDS = all_fields()


def test_there_is_a_definition_for_every_type_up_to_23() -> None:
    assert list(records()) == list(range(24))


def test_only_type_18_is_planned() -> None:
    assert [made.type for made in records().values() if made.planned] == [18]


def test_a_type_without_a_file_has_no_definition() -> None:
    assert record(24) is None


@pytest.mark.parametrize(("where", "field"), FIELDS, ids=[where for where, _ in FIELDS])
def test_every_field_says_what_it_is_and_since_when(where: str, field: Field) -> None:
    assert field.about.endswith("."), where
    assert field.since.replace(".", "").isdigit(), where


@pytest.mark.parametrize("made", records().values(), ids=lambda made: made.name)
def test_every_struct_that_is_named_is_defined_and_every_one_defined_is_used(made: RecordDefinition) -> None:
    bodies = [made.key, made.value, *made.layouts.values()]
    fields = [f for body in bodies for f in body.fields] + [f for struct in made.structs.values() for f in struct]
    named = {f.element for f in fields if f.element[0].isupper()}

    assert named == set(made.structs)


def test_one_line_adds_a_field() -> None:
    line = {"name": "NewThing", "type": "int32", "tag": 0, "default": -1, "since": "9.10", "about": "New."}

    [field] = definition(value={"versions": "0", "flexible": "0+", "fields": [line]}).value.fields

    assert (field.name, field.camel, field.snake) == ("NewThing", "newThing", "new_thing")
    assert (field.tag, field.default, field.since, field.kip) == (0, -1, "9.10", 1)


@pytest.mark.parametrize(
    ("name", "snake", "camel"),
    [
        ("GroupId", "group_id", "groupId"),
        ("group", "group", "group"),
        ("leaderEpoch", "leader_epoch", "leaderEpoch"),
        ("RebalanceTimeoutMs", "rebalance_timeout_ms", "rebalanceTimeoutMs"),
        ("StandbyTasksPendingRevocation", "standby_tasks_pending_revocation", "standbyTasksPendingRevocation"),
    ],
)
def test_names_are_derived_from_kafkas(name: str, snake: str, camel: str) -> None:
    made = definition(key={"fields": [{"name": name, "type": "string", "about": "It."}]})

    assert (made.key.fields[0].snake, made.key.fields[0].camel) == (snake, camel)


@pytest.mark.parametrize(
    ("kind", "given", "default"),
    [
        ("int32", {}, 0),
        ("int32", {"default": -1}, -1),
        ("string", {}, ""),
        ("string", {"default": "null"}, None),
        ("uuid", {}, "A" * 22),
        ("[]int32", {}, ""),
        ("[]int32", {"nullable": True}, ""),
    ],
)
def test_a_default_is_what_the_line_says_or_the_types_zero(kind: str, given: dict[str, Any], default: object) -> None:
    made = definition(key={"fields": [{"name": "X", "type": kind, "about": "It."} | given]})

    assert made.key.fields[0].default == default


def test_a_misspelt_key_in_a_line_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Made.X: unknown \['defualt'\]"):
        definition(key={"fields": [{"name": "X", "type": "int32", "about": "It.", "defualt": 1}]})


@pytest.mark.parametrize("kind", ["int31", "[]int31", "TaskIds", "[][]int32", ""])
def test_a_type_that_is_not_there_is_refused(kind: str) -> None:
    with pytest.raises(DefinitionError, match=r"Made.X: neither a type nor a struct: "):
        definition(key={"fields": [{"name": "X", "type": kind, "about": "It."}]})


def test_a_dialect_of_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Made, dialect other: no such fields: \['Epok'\]"):
        definition(dialects={"other": {"about": "Other tags.", "tags": {"Epok": 3}}})


def test_a_file_under_the_number_of_another_type_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the file of type 99 defines type 98"):
        definition(type=98)


@pytest.mark.parametrize(
    ("text", "within", "without", "printed"),
    [
        ("0", [0], [-1, 1], "0"),
        ("0-4", [0, 4], [-1, 5], "0-4"),
        ("3+", [3, 32767], [2], "3+"),
        ("none", [], [0, -1], "none"),
    ],
)
def test_ranges_of_versions_are_read_and_printed(
    text: str, within: list[int], without: list[int], printed: str
) -> None:
    versions = Versions.parse(text)

    assert [v in versions for v in within] == [True] * len(within)
    assert [v in versions for v in without] == [False] * len(without)
    assert str(versions) == printed


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1..2", "1+2"])
def test_what_is_no_range_of_versions_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="not a range"):
        Versions.parse(text)


def test_the_written_page_is_what_the_definitions_say() -> None:
    assert document.PAGE.read_text(encoding="utf-8") == document.page(), "run `python -m schemas.document`"


def test_the_written_page_names_every_record_and_field() -> None:
    page = document.page()

    assert [made.name for made in records().values() if f"\n## {made.type} {made.name}\n" not in page] == []
    assert [where for where, field in FIELDS if f"{field.name}`" not in page] == []
