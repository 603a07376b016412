import pytest

from offsets_decoder.definitions import DefinitionError, Field, Versions, _record, records


def all_fields() -> list[tuple[str, Field]]:
    return [
        (f"{definition.type} {field.name}", field)
        for definition in records().values()
        for fields in (definition.key.fields, definition.value.fields, *definition.structs.values())
        for field in fields
    ]


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


def test_an_unknown_key_of_a_field_is_an_error() -> None:
    field = {"name": "X", "type": "int32", "about": "It.", "defualt": 1}
    bodies = {"key": {"fields": [field]}, "value": {"versions": "0", "flexible": "0+", "fields": []}}
    with pytest.raises(TypeError, match="defualt"):
        _record({"type": 99, "name": "Example", "since": "9.9", "kip": 1, "about": "An example.", **bodies})


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1..2", "1+2"])
def test_an_invalid_range_of_versions_is_an_error(text: str) -> None:
    with pytest.raises(DefinitionError, match="not a range"):
        Versions.parse(text)
