r"""Formats and parses text for users: numbers, names, times, durations, sizes; and escapes unsafe characters.

All packages format these values with these functions, and commands and settings parse durations in the same way. Pure:
the caller passes the time. Texts of one package only, such as those of an alert, stay in that package.

Text that others chose, such as a group id, is escaped for terminals, logs and JSON. Escaped are: control characters (C0
and C1, which terminals obey), marks that change the direction of text, characters without width or glyph (with which
two ids would look the same), line separators, and unpaired surrogates. Letters of every script, accents and symbols
stay.
"""

import hashlib
import math
import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta, timezone
from itertools import islice

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
"""In seconds."""
EPOCH = datetime.fromtimestamp(0, timezone.utc)
"""Before every time of a record: what stands for one that is not known, where such are the first."""


# Invisible, but printable for `str.isprintable`: fillers, variation selectors and a blank. The other characters with
# the property Default_Ignorable_Code_Point of Unicode 16 (DerivedCoreProperties.txt) are of category Cf or Cn.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_NOT_ASCII_TEXT = re.compile(r"[^\n -~]")


def is_visible(text: str) -> bool:
    """Return whether every character is shown as itself."""
    return text.isprintable() and (text.isascii() or _INVISIBLE.search(text) is None)


def escape(text: str) -> str:
    r"""Return the text on one line, with escapes as in Python for what is not shown as itself: `\x1b`, `\u202e`."""
    if is_visible(text):
        return text
    return "".join(one if is_visible(one) else one.encode("unicode_escape").decode("ascii") for one in text)


def escape_lines(text: str) -> str:
    """Return the lines of a text, each escaped. All but the first are indented, so that none looks like another's."""
    return "\n    ".join(map(escape, text.split("\n")))


def escape_json(text: str) -> str:
    r"""Return the same JSON with `\uXXXX` for what is not shown as itself in its strings. Keeps the line feeds."""
    return _NOT_ASCII_TEXT.sub(lambda match: match[0] if is_visible(match[0]) else json_units(match[0]), text)


def json_units(text: str) -> str:
    r"""Return the text as escapes of JSON: `\u00e9`, two for a character beyond U+FFFF."""
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


MAX_NAME_CHARACTERS = 200  # a file name may have 255 bytes, and suffixes such as `.running.json` are added
# Next to the checkpoint of cluster `X` are `X.state0.json` and `X.state1.json`, and `.new` while one is written.
_NAME = re.compile(rf"(?!\.{{1,2}}\Z)(?!.*\.(?:json|new)\Z)[A-Za-z0-9._-]{{1,{MAX_NAME_CHARACTERS}}}")


def is_name(text: str) -> bool:
    """Return whether the text is a valid name: one component of a path, and not one that is used already."""
    return _NAME.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Return the name. Raises ValueError, with the valid form, if it is invalid."""
    if not is_name(text):
        form = f'letters, digits, ".", "_" and "-" (at most {MAX_NAME_CHARACTERS}, not "." or ".."'
        raise ValueError(f'must be {form}, no ".json" or ".new" at the end), not "{text}"')
    return text


def digest(text: str, characters: int = 64) -> str:
    """Return a hash in hexadecimal, in place of a text that is too long, or has characters that do not fit."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:characters]


_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[^\s\]]+)\]|(?P<host>[^\s:\[\]]+)):(?P<port>\d{1,5})")
_MAX_PORT = 65_535


def split_address(text: str) -> tuple[str, int]:
    """Split `HOST:PORT` or `[::]:PORT` into host and port. Raises ValueError for any other text."""
    matched = _ADDRESS.fullmatch(text)
    if not matched or int(matched["port"]) > _MAX_PORT:
        raise ValueError(f'must be HOST:PORT, such as 127.0.0.1:9464 or [::]:9464, not "{text}"')
    return matched["ipv6"] or matched["host"], int(matched["port"])


def host_of(client_host: str | None) -> str | None:
    """Return the host of a client without the slash that Java prints before an address."""
    return client_host and client_host.lstrip("/")


def count(number: int, noun: str, several: str | None = None) -> str:
    """Return a number with its noun, in the plural unless it is one: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def round_down(number: int) -> int:
    """Set all digits but the first to 0: a number that changes all the time would be written each time."""
    unit: int = 10 ** (len(str(number)) - 1)
    return number // unit * unit


def and_more(number: int) -> str:
    """Return ` and 298 more`, to follow what is named; an empty string if no more is left."""
    return f" and {number:,} more" if number > 0 else ""


def rank(value: str | None, order: Sequence[str]) -> int:
    """Return the place of a value in an order; one that only a later release has is the last."""
    return order.index(value) if value in order else len(order)


def first_of(texts: Collection[str], most: int, total: int | None = None, separator: str = ", ") -> str:
    """Return the first `most` texts, and how many more there are: `orders, payments and 298 more`.

    `total` is how many there are if `texts` has only the first. After a separator other than a comma the number is an
    item of its own: `a; b; and 3 more`.
    """
    named = separator.join(islice(texts, most))
    left = and_more((len(texts) if total is None else total) - most)
    return named + (separator.strip() if left and separator != ", " else "") + left


def shorten(text: str, most: int, end: str = "…") -> str:
    """Return the text, cut to `most` characters, of which `end` is the last, if it has more."""
    return text if len(text) <= most else text[: most - len(end)] + end


def utc(time: datetime) -> str:
    """Return a time in UTC, to the second: `2026-11-21 18:11:25Z`."""
    return f"{time.astimezone(timezone.utc):%Y-%m-%d %H:%M:%SZ}"


def utc_clock(time: datetime) -> str:
    """Return the time of day in UTC, where the date is clear: `18:11:25Z`."""
    return f"{time.astimezone(timezone.utc):%H:%M:%SZ}"


def utc_iso(time: datetime, timespec: str = "milliseconds") -> str:
    """Return a time in UTC as ISO 8601: `2026-11-21T18:11:25.765Z`; `timespec` is that of `isoformat`."""
    return time.astimezone(timezone.utc).isoformat(timespec=timespec).replace("+00:00", "Z")


def parse_instant(text: str, now: datetime) -> datetime:
    """Return the time that is meant by ISO 8601, in UTC without a zone, or by a duration such as `2h`: so long ago.

    Raises ValueError for anything else.
    """
    try:
        time = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        try:
            return datetime.fromtimestamp(now.timestamp() - parse_duration(text), timezone.utc)
        except ValueError:
            raise ValueError(
                f'must be a time such as 2026-03-14T03:12Z, or as 2h for two hours ago, not "{text}"'
            ) from None
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


_UNITS = {"w": 7 * DAY, "d": DAY, "h": HOUR, "m": MINUTE, "s": 1.0, "ms": 0.001}
_AS_PROMETHEUS = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS))  # each unit once, largest first
_AS_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
LONGEST, LONGEST_RETENTION = 3_650 * DAY, 36_500 * DAY
"""The longest durations that may be given."""
_SHOWN_UNITS = (("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", 1.0))
_MINUTES_ONLY = 10 * MINUTE


def parse_duration(given: object, longest: float = LONGEST, unit: float = 1.0) -> float:
    """Return a duration in seconds, at most `longest`: `90s`, `5m`, `1h30m`, `7d`, or ISO 8601 such as `PT5M`, `P7D`.

    A number alone, also as text, counts in `unit`, which is a second or a day. Years and months of ISO 8601 are not
    durations of one length. Raises ValueError, with the given value, for anything else.
    """
    value = math.nan
    if isinstance(given, int | float) and not isinstance(given, bool):
        value = unit * given
    elif isinstance(given, str):
        value = _parse_duration(given.strip(), unit)
    if math.isnan(value):
        numbers = "seconds" if unit == 1 else "days"
        raise ValueError(f'must be {numbers}, or a duration such as 90s, 5m or 1h30m, not "{given}"')
    if value < 0:
        raise ValueError(f'must not be negative, not "{given}"')
    if value > longest:
        raise ValueError(f'must be at most {format_duration(longest)}, not "{given}"')
    return value


def _parse_duration(text: str, unit: float) -> float:
    positive = text.removeprefix("-")
    match = _AS_ISO.fullmatch(positive) or _AS_PROMETHEUS.fullmatch(positive)
    if match and any(match.groups()):
        value = sum(float(n) * size for n, size in zip(match.groups(), _UNITS.values(), strict=False) if n)
        return -value if text.startswith("-") else value
    try:
        return unit * float(text)
    except ValueError:
        return math.nan


def format_duration(seconds: float) -> str:
    """Return the shortest text that `parse_duration` reads as this number of seconds: `1h30m`; `0s`."""
    parts, left = [], round(seconds * 1000)
    for unit, size in [*_UNITS.items()][1:]:  # 8d, not 1w1d
        number, left = divmod(left, round(size * 1000))
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def lasted(time: timedelta) -> str:
    """Return how long something lasted, to the second: `1h30m5s`."""
    return format_duration(round(time.total_seconds()))


def duration(seconds: float, units: int = 2) -> str:
    """Return a duration to read, in its largest units: `2 h 5 min`; from ten minutes on without seconds."""
    left = max(0, int(seconds))
    if left >= _MINUTES_ONLY:
        left -= left % 60
    parts: list[str] = []
    for unit, size in _SHOWN_UNITS:
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // round(size)} {unit}")
            left %= round(size)
        elif parts:
            break
    return " ".join(parts[:units])


def ago(then: datetime, now: datetime) -> str:
    """Return how long ago a time is, in its largest unit: `5 min ago`."""
    return f"{duration((now - then).total_seconds(), units=1)} ago"


MIB, GIB = 1 << 20, 1 << 30
_SIZE_UNITS = {"b": 1, "k": 1 << 10, "m": MIB, "g": GIB, "t": 1 << 40, "p": 1 << 50}
_SIZE = re.compile(r"(\d+)\s*([kmgtp]?)b?", re.IGNORECASE)


def parse_size(text: str, unit: str = "b") -> int:
    """Return a size in bytes, as Spark reads it: `512k`, `2g`, `4 GB`; units are powers of 1024.

    A number alone counts in `unit`, one of `b`, `k`, `m`, `g`, `t`, `p`. Raises ValueError for anything else.
    """
    matched = _SIZE.fullmatch(text.strip())
    if matched is None:
        raise ValueError(f'must be a size such as 512k, 64m or 2g, not "{text}"')
    has_unit = not text.strip().isdigit()
    return int(matched[1]) * _SIZE_UNITS[matched[2].lower() or ("b" if has_unit else unit)]


def gibibytes(size: float, digits: int = 1) -> str:
    """Return a number of bytes of memory or disk: `1.5 GiB`."""
    return f"{size / GIB:.{digits}f} GiB"


def megabytes(size: float) -> str:
    """Return a number of bytes of files: `340 MB`."""
    return f"{size / 1_000_000:.0f} MB"
