"""Validation of settings: checks of single values, readable problems, and the base class of settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform
from urllib.parse import urlsplit

from mooring.config.references import expand, references
from mooring.core.redact import reveal
from mooring.core.text import did_you_mean
from mooring.core.types import PROTOCOLS
from mooring.core.value import UNSET, Field, Value, check_arguments
from mooring.errors import ConfigError

_UNITS = {
    **dict.fromkeys(("ms", "msec", "millis"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_LARGEST = 10**15
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_STEP = rf"({_NUMBER})\s*([a-z]+)\s*"
_SIZE = rf"({_NUMBER})\s*([a-z]*)"

_DURATION_HELP = "write a number of seconds, or a text such as '500ms', '30s', '5m', '1h30m'"
_SIZE_HELP = "write a number of bytes, or a text such as '512KiB' or '16MiB'"


def kind(value: object) -> str:
    """Return the type of a value in words, for messages without the value."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def number(value: object) -> float | None:
    """Return the number in `value`, a number or its text; None if it is neither."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        # The limit also rejects infinity, NaN, and integers too large for a float.
        return float(value) if abs(value) < _LARGEST else None
    if isinstance(value, str):
        text = value.strip()
        sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
        return sign * float(digits) if re.fullmatch(_NUMBER, digits) else None
    return None


def seconds(value: object) -> float:
    """Return the seconds of a duration.

    Raises:
        ValueError: it is not a duration, or negative.
    """
    plain = number(value)
    if plain is not None:
        if plain < 0:
            raise ValueError(f"must not be negative; {_DURATION_HELP}")
        return plain
    if not isinstance(value, str):
        raise ValueError(f"must be a duration, not {kind(value)}; {_DURATION_HELP}")
    text, total, at = value.strip().lower(), 0.0, 0
    while step := re.compile(_STEP).match(text, at):
        if step[2] not in _UNITS:
            break
        total += float(step[1]) * _UNITS[step[2]]
        at = step.end()
    if not text or at < len(text):
        raise ValueError(f"is not a duration; {_DURATION_HELP}")
    return total


def size(value: object) -> int:
    """Return the bytes of a size.

    Raises:
        ValueError: it is not a size, or negative.
    """
    plain = number(value)
    if plain is not None and plain >= 0 and plain.is_integer():
        return int(plain)
    found = re.fullmatch(_SIZE, value.strip().lower()) if isinstance(value, str) else None
    if found is None or not found[2] or found[2] not in _SIZES:
        raise ValueError(f"is not a size; {_SIZE_HELP}")
    return int(float(found[1]) * _SIZES[found[2]])


_RESERVED = frozenset(
    {
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "last-event-id",
        "accept",
        "content-type",
        "content-length",
        "transfer-encoding",
        "host",
        "connection",
    }
)
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEADER_VALUE = r"[\x20-\x7e\t]*"
_PATH_LIKE = r"[./~$]|[A-Za-z]:[\\/]|\\\\"
_NAME_LIMIT = 128


def shown(name: str) -> str:
    """Return a name for a message: quoted, escaped and at most 40 characters."""
    return repr(name if len(name) <= 40 else name[:39] + "…")


def check_name(name: str) -> str:
    if not name or name != name.strip():
        raise ValueError("must not be empty, nor begin or end with a space")
    if len(name) > _NAME_LIMIT:
        raise ValueError(f"must be a name of at most {_NAME_LIMIT} characters")
    if not name.isprintable() or "/" in name or "\\" in name:
        raise ValueError("must be a name without slashes and control characters, such as 'github'")
    return name


def check_command(command: str, *, has_args: bool) -> None:
    if not command.strip():
        raise ValueError("must name a program")
    if " " in command.strip() and not has_args and not re.match(_PATH_LIKE, command):
        raise ValueError(
            "looks like a shell line; write the program alone in 'command' "
            "and each argument as one item of 'args'"
        )


def check_url_text(url: str) -> str:
    """Return `url` if it is valid. References in it may have any value."""
    check_url(sample_url(url))
    return url


def sample_url(url: str) -> str:
    """Return an example of `url` with resolved references."""
    text = expand(url, lambda _: "1")
    # A reference at the start contains the scheme, which is checked when connecting.
    return "http://" + text if url.startswith("${") and references(url) else text


def check_url(text: str) -> None:
    if not re.match(r"https?://", text, re.IGNORECASE):
        raise ValueError("must start with http:// or https://")
    if re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError("must not hold spaces or control characters")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        # The message of urlsplit contains parts of the URL.
        raise ValueError("is not a valid URL: check the host and the port") from None
    if "@" in parts.netloc:
        raise ValueError(
            "must not hold a user name, password or token before the host; "
            'send it as a header: headers: {Authorization: "Bearer ${VAR}"}'
        )
    if not host:
        raise ValueError("names no host; write it as https://host/path")


def check_header(name: str, value: str) -> None:
    if not re.fullmatch(_HEADER_NAME, name):
        raise ValueError(
            "has an invalid header name; use letters, digits and hyphens, such as 'Authorization'"
        )
    if name.lower() in _RESERVED or name.lower().startswith("mcp-param-"):
        raise ValueError(f"sets {shown(name)}, which belongs to the protocol; remove it")
    if not re.fullmatch(_HEADER_VALUE, reveal(value)):
        raise ValueError(
            f"has a value for {shown(name)} that a header cannot carry: only visible ASCII, on one line"
        )


def check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        check_header(name, value)
    return headers


def check_protocol(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"20\d\d-\d\d-\d\d", value):
        return value
    raise ValueError("must be a version of the protocol, such as '2025-06-18'")


def check_spoken(value: object) -> str:
    """Return `auto` or a supported protocol version."""
    if value == "auto" or value in PROTOCOLS:
        return str(value)
    raise ValueError(f"must be 'auto' or one of {', '.join(PROTOCOLS)}")


def text_of(value: object) -> str:
    """Return the text of a scalar, such as `8080` or `true`."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            if "\0" in reveal(value):
                raise ValueError("must not hold a NUL character")
            return value
        case _:
            raise ValueError(f"must be text, not {kind(value)}")


def list_of_text(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        hint = ", never a shell string" if isinstance(value, str) else f", not {kind(value)}"
        raise ValueError(f'must be a list such as ["first", "second"]{hint}')
    items = cast("list[object]", value)
    try:
        return tuple(text_of(item) for item in items)
    except ValueError as problem:
        raise ValueError(f"must be a list of texts; one item {problem}") from None


def map_of_text(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of names to texts, not {kind(value)}")
    result: dict[str, str] = {}
    for name, item in cast("Mapping[Any, object]", value).items():
        if not isinstance(name, str) or not name or "\0" in name or "=" in name:
            raise ValueError("must be a mapping of names to texts; one name is empty or holds '='")
        try:
            result[name] = text_of(item)
        except ValueError as problem:
            raise ValueError(f"{shown(name)} {problem}") from None
    return result


def reference_names(value: object) -> object:
    """Return `value` with every text reduced to its references, without possible secrets."""
    match value:
        case str():
            return [str(reference) for reference in references(value)]
        case Mapping():
            return {
                str(key): reference_names(item)
                for key, item in sorted(cast("Mapping[Any, object]", value).items())
            }
        case list() | tuple():
            return [reference_names(item) for item in cast("list[object]", value)]
        case _:
            return None


class Problem(Value):
    """One problem of an entry."""

    field: str | None
    message: str
    serious: bool = False
    """Whether a security setting may be missing because of it."""


class InvalidEntryError(ConfigError):
    """An entry is invalid. `problems` lists everything that is wrong."""

    def __init__(self, problems: tuple[Problem, ...], *, place: str | None = None) -> None:
        lines = [f"{p.field!r} {p.message}" if p.field else p.message for p in problems]
        super().__init__("; ".join(lines), place=place)
        self.problems = problems


def misspelled(name: str, known: Iterable[str]) -> str | None:
    """Return the known name within one edit of `name` (two for a long name), or None.

    Narrower than `nearest`, for places where most unknown names belong to other programs.
    """
    for other in sorted(known):
        typos = 0 if len(other) < 4 else 1 if len(other) < 6 else 2
        if abs(len(name) - len(other)) <= typos and 0 < _distance(name, other) <= typos:
            return other
    return None


def _distance(one: str, two: str) -> int:
    """Return the edit distance, with swapped neighbours as one edit."""
    before, row = list[int](), list(range(len(two) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, other in enumerate(two, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == two[j - 2] and one[i - 2] == other:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


T = TypeVar("T")
Read = Callable[[object], T]
"""Converts the given value of a field. Raises a ValueError without the value."""

_FLAGS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}


class _Setting(Field):
    def __init__(self, read: Read[Any], default: Any) -> None:
        super().__init__(default)
        self.read = read


def setting(read: Read[T], *, default: T = UNSET) -> T:
    """Declare a field of `Settings` with its converter. Without a default it is required."""
    return cast("Any", _Setting(read, default))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting,))
class Settings(Value):
    """Base of validated values whose fields are declared with `setting`."""

    _reads: ClassVar[Mapping[str, Read[Any]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {name: one.read for name, one in vars(cls).items() if isinstance(one, _Setting)}
        cls._reads = {**cls._reads, **own}

    @classmethod
    def readers(cls) -> Mapping[str, Read[Any]]:
        """Return the converter of each field."""
        return cls._reads

    def __init__(self, **fields: object) -> None:
        check_arguments(type(self), fields.keys())
        self._fill(fields)

    @classmethod
    def from_fields(cls, fields: Mapping[str, object]) -> Self:
        """Return settings from fields of a file.

        Raises:
            InvalidEntryError: fields are wrong, unknown or missing. It lists all of them.
        """
        new = cls.__new__(cls)
        new._fill(fields)
        return new

    def _fill(self, fields: Mapping[str, object]) -> None:
        values, problems = self._read(self._completed(fields))
        if not problems:
            self.__dict__.update(values)
            try:
                self._check()
            except ValueError as problem:
                problems.append(Problem(field=None, message=str(problem)))
        if problems:
            raise InvalidEntryError(tuple(problems), place=self._place(fields))

    @classmethod
    def _read(cls, given: Mapping[str, object]) -> tuple[dict[str, Any], list[Problem]]:
        values, problems = dict(cls._defaults), list[Problem]()
        for name, value in given.items():
            if (read := cls._reads.get(name)) is None:
                near = did_you_mean(name, cls._reads)
                hint = f"did you mean {near!r}?" if near else "remove it"
                problems.append(Problem(field=name, message=f"is not a known field; {hint}"))
                continue
            try:
                values[name] = read(value)
            except InvalidEntryError as inner:
                problems += (
                    Problem(field=".".join(filter(None, (name, problem.field))), message=problem.message)
                    for problem in inner.problems
                )
            except ValueError as problem:
                problems.append(Problem(field=name, message=str(problem)))
        missing = cls._reads.keys() - cls._defaults.keys() - given.keys()
        problems += (Problem(field=name, message="is missing; add it") for name in sorted(missing))
        return values, problems

    @classmethod
    def _completed(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        """Return `given` with derived fields."""
        return given

    def _check(self) -> None:
        """Raise a ValueError if the fields contradict each other."""

    @classmethod
    def _place(cls, given: Mapping[str, object]) -> str | None:
        """Return the place for error messages."""
        return None


def some_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {kind(value)}")
    return value


def flag(value: object) -> bool:
    """Convert a boolean, also from the words for it in YAML."""
    known = _FLAGS.get(str(value).lower()) if isinstance(value, bool | int | str) else None
    if known is None:
        raise ValueError("must be true or false")
    return known


def whole(value: object) -> int:
    """Convert an integer, also from text."""
    plain = number(value)
    if plain is None or not plain.is_integer():
        raise ValueError("must be a whole number")
    return int(plain)


def one_of(*choices: str) -> Read[Any]:
    words = " or ".join(filter(None, (", ".join(map(repr, choices[:-1])), repr(choices[-1]))))

    def read(value: object) -> str:
        if isinstance(value, str) and value in choices:
            return value
        near = did_you_mean(value, choices) if isinstance(value, str) else None
        raise ValueError(f"must be one of {words}" + (f"; did you mean {near!r}?" if near else ""))

    return read


def within(
    read: Read[T], *, above: float | None = None, least: float | None = None, most: float | None = None
) -> Read[T]:
    """Return a converter that also checks limits."""

    def limited(value: object) -> T:
        result = read(value)
        size = cast("float", result)
        if above is not None and size <= above:
            raise ValueError(f"must be more than {above:g}")
        if least is not None and size < least:
            raise ValueError(f"must be at least {least:g}")
        if most is not None and size > most:
            raise ValueError(f"must be at most {most:g}")
        return result

    cast("Any", limited).limits = {"exclusiveMinimum": above, "minimum": least, "maximum": most}
    return _wrapping(read, limited)


def optional(read: Read[T]) -> Read[T | None]:
    return _wrapping(read, lambda value: None if value is None else read(value))


def _wrapping(inner: Read[Any], outer: Read[T]) -> Read[T]:
    """Return `outer` with `inner` as its `__wrapped__`, where the reference of settings finds the type."""
    cast("Any", outer).__wrapped__ = inner
    return outer


def instance(of: type[T]) -> Read[T]:
    """Return a converter that accepts only an instance of this class."""

    def read(value: object) -> T:
        if isinstance(value, of):
            return value
        raise ValueError(f"has the wrong type: {kind(value)}")

    return read


S = TypeVar("S", bound=Settings)


def section(of: type[S]) -> Read[S]:
    """Return a converter for nested settings: an object, or a mapping of its fields."""

    def read(value: object) -> S:
        if isinstance(value, Mapping):
            return of.from_fields(
                {str(name): item for name, item in cast("Mapping[object, object]", value).items()}
            )
        return instance(of)(value)

    return read


_JSON_NUMBER = r"[-+]?(?:0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?"


class Unquoted(str):
    """An unquoted YAML scalar that would be a number or a boolean in JSON.

    Everywhere else it is used as text, so that `1.10` and `22:22` keep their spelling.
    """

    __slots__ = ()


def plain_scalar(text: str) -> str:
    """Return the text of an unquoted scalar, marked if it could be a JSON number or boolean."""
    return Unquoted(text) if text in ("true", "false") or re.fullmatch(_JSON_NUMBER, text) else text


def as_json(value: object) -> Any:
    """Return a JSON value from a file.

    Raises:
        ValueError: It has no JSON value, such as a date of TOML.
    """
    if isinstance(value, Unquoted):
        found = re.fullmatch(_JSON_NUMBER, value)
        if found is None:
            return value == "true"
        return float(value) if found[1] or found[2] else int(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [as_json(item) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in cast("Mapping[object, object]", value).items()}
    raise ValueError("must hold JSON values; put dates and times in quotes")
