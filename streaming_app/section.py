"""The base class of the sections of the configuration, and the types of their values.

Types of values that several sections have, such as a duration or an address, are here, and so is the reader of files
with a secret. The sections themselves are in `config`; the sections of sinks are next to the sinks.
"""

import errno
import os
import re
import stat
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from typing_extensions import Self

from streaming_app.regex import Regex, given_regex
from streaming_app.text import DAY, LONGEST_RETENTION, parse_duration, split_address

_WORDED = "worded"  # the type of an error that a section has described
_SHOULD = re.compile(r"^\w+ should ")
OF_CONTAINERS = {
    **dict.fromkeys(("model", "dict", "mapping"), "must contain keys and values"),
    "tuple": "must be a list",
}
_WORDS = OF_CONTAINERS | {
    "missing": "must be given",
    "string_type": "must be text; write it in quotes",
    "path_type": "must be a path; write it in quotes",
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
}
"""By the type of pydantic's error, or the first word of that: for those that it describes in terms of Python."""


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant; None if none is near."""
    by_lower_case = {one.lower(): one for one in known}
    nearest = get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.7)
    return by_lower_case[nearest[0]] if nearest else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean topic?` with the closest known name, to follow an error; empty if none is near."""
    closest = closest_name(name, known)
    return f"; did you mean {closest}?" if closest else ""


def read_secret_file(file: Path) -> str:
    """Return the text of the file.

    Raises OSError, also if others than its owner and its group may read it, and UnicodeDecodeError.
    """
    with file.open(encoding="utf-8") as opened:
        if is_open_to_all(os.fstat(opened.fileno())):
            reason = "every user may read it, and it holds a secret: chmod o= it, or mount it with defaultMode 0440"
            raise PermissionError(errno.EPERM, reason, str(file))
        return opened.read()


def is_open_to_all(status: os.stat_result) -> bool:
    """Return whether every user of the machine may read a file."""
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & stat.S_IROTH)


FilePath = Annotated[Path, AfterValidator(Path.expanduser)]
"""A path, in which `~` is the home directory, as in a shell."""


class Section(BaseModel):
    """A section: its values do not change, a key that it does not have is an error, and no error shows a secret.

    The message of an error says what the value must be, in one line. Durations are seconds, or text such as `90s`,
    `5m`, `1h30m` or `PT5M`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="wrap")
    @classmethod
    def _describe_errors(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:  # noqa: ANN401 - any YAML value
        try:
            return validate(given)
        except ValidationError as error:
            described = [
                InitErrorDetails(
                    type=PydanticCustomError(_WORDED, "{line}", {"line": cls._describe(one)}),
                    loc=one["loc"],
                    input=one["input"],
                )
                for one in error.errors(include_url=False)
            ]
            raise ValidationError.from_exception_data(cls.__name__, described, hide_input=True) from None

    @classmethod
    def _describe(cls, error: ErrorDetails) -> str:
        kind, context = error["type"], error.get("ctx", {})
        if kind == _WORDED:
            return error["msg"]
        if kind == "value_error":  # of a validator of ours
            return str(context["error"])
        if kind == "extra_forbidden":
            keys = (field.serialization_alias or name for name, field in cls.model_fields.items())
            return "is not a known key" + did_you_mean(str(error["loc"][-1]), keys)
        if kind == "union_tag_invalid":
            return f"its type must be one of {context['expected_tags'].replace(chr(39), '')}"
        return _WORDS.get(kind) or _WORDS.get(kind.partition("_")[0]) or _SHOULD.sub("must ", error["msg"])


def _positive(value: float) -> float:
    if not value:
        raise ValueError("must be more than 0")
    return value


def _compile(given: Any) -> Regex:  # noqa: ANN401 - any YAML value
    if isinstance(given, Regex):
        return given
    if not isinstance(given, str):
        raise ValueError(f'must be a regular expression, in quotes, not "{given}"')  # noqa: TRY004 - pydantic's way
    return given_regex(given)


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""In seconds; given as a number of them, or as text such as `90s`, `5m`, `1h30m` or `PT5M`."""

PositiveDuration = Annotated[Duration, AfterValidator(_positive)]

Days = Annotated[
    float,
    BeforeValidator(lambda given: parse_duration(given, LONGEST_RETENTION, unit=DAY) / DAY),
    AfterValidator(_positive),
]
"""In days; given as a number of them, or as text such as `12h`, `30d` or `P30D`."""

Pattern = Annotated[Regex, PlainValidator(_compile), PlainSerializer(lambda regex: regex.pattern, return_type=str)]
"""A regular expression of RE2's syntax that a whole text matches, as Prometheus does."""

Address = Annotated[str, AfterValidator(lambda text: split_address(text) and text)]
"""Where to listen: `HOST:PORT` or `[::]:PORT`."""
