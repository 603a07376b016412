import pytest

from offsets_decoder.definitions import DefinitionError, Field, RecordDefinition, Versions, _record, records


def load_definition(**changes: object) -> RecordDefinition:
    data = {
        "type": 99,
        "name": "Example",
        "since": "9.9",
        "kip": 1,
        "about": "An example.",
        "key": {"fields": [{"name": "GroupId", "type": "string", "about": "The group."}]},
        "value": {"versions": "0-1", "flexible": "1+", "fields": []},
    }
    return _record(data | changes)


def all_fields() -> list[tuple[str, Field]]:
    return [
        (f"{definition.type} {field.name}", field)
        for definition in records().values()
        for fields in (definition.key.fields, definition.value.fields, *definition.structs.values())
        for field in fields
    ]


def test_only_type_18_is_planned() -> None:
    assert [definition.type for definition in records().values() if definition.planned] == [18]


def test_every_field_has_a_description_and_a_release() -> None:
    for field_id, field in all_fields():
        assert field.about.endswith("."), field_id
        assert field.since.replace(".", "").isdigit(), field_id


def test_every_struct_that_is_used_is_defined_and_every_defined_one_is_used() -> None:
    for definition in records().values():
        bodies = [definition.key, definition.value, *definition.layouts.values()]
        fields = [f for fields in (*(body.fields for body in bodies), *definition.structs.values()) for f in fields]
        used = {f.element for f in fields if f.element[0].isupper()}

        assert used == set(definition.structs), definition.name


def test_one_line_in_a_definition_adds_a_field() -> None:
    line = {"name": "NewThing", "type": "int32", "tag": 0, "default": -1, "since": "9.10", "about": "New."}

    [field] = load_definition(value={"versions": "0", "flexible": "0+", "fields": [line]}).value.fields

    assert (field.name, field.camel, field.snake) == ("NewThing", "newThing", "new_thing")
    assert (field.tag, field.default, field.since, field.kip) == (0, -1, "9.10", 1)


def test_an_unknown_key_of_a_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="defualt"):
        load_definition(key={"fields": [{"name": "X", "type": "int32", "about": "It.", "defualt": 1}]})


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1..2", "1+2"])
def test_an_invalid_range_of_versions_is_an_error(text: str) -> None:
    with pytest.raises(DefinitionError, match="not a range"):
        Versions.parse(text)
