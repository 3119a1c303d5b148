"""Values whose fields say how they are read, and which tell everything that is wrong at once.

Checked by hand and not by pydantic: importing it and building its models took longer than all the
rest of opening a host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

from mooring.core.durations import kind, number
from mooring.core.problems import InvalidEntryError, Problem, did_you_mean
from mooring.core.values import UNSET, Field, Value

__all__ = [
    "Settings",
    "flag",
    "instance",
    "one_of",
    "optional",
    "section",
    "setting",
    "some_text",
    "whole",
    "within",
]

T = TypeVar("T")
Read = Callable[[object], T]
"""Makes a field's value of what was given for it; ValueError says what is wrong, without the value."""

_FLAGS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}


class _Setting(Field):
    def __init__(self, read: Read[Any], default: Any) -> None:
        super().__init__(default)
        self.read = read


def setting(read: Read[T], *, default: T = UNSET) -> T:
    """A field of `Settings` and how it is read; without a default it must be given."""
    return cast("Any", _Setting(read, default))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting,))
class Settings(Value):
    """Base of values that read their fields with `setting`."""

    _reads: ClassVar[Mapping[str, Read[Any]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {name: one.read for name, one in vars(cls).items() if isinstance(one, _Setting)}
        cls._reads = {**cls._reads, **own}

    def __init__(self, **given: object) -> None:
        values, problems = self._read(self._completed(given))
        if not problems:
            self.__dict__.update(values)
            try:
                self._check()
            except ValueError as problem:
                problems.append(Problem(field=None, message=str(problem)))
        if problems:
            raise InvalidEntryError(tuple(problems), place=self._place(given))

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
        """`given` with what follows from it."""
        return given

    def _check(self) -> None:
        """Raise ValueError if the fields, each good in itself, do not go together."""

    @classmethod
    def _place(cls, given: Mapping[str, object]) -> str | None:
        """How an error names what was being made."""
        return None


def some_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {kind(value)}")
    return value


def flag(value: object) -> bool:
    """True or false, also as the words for it that people write in YAML, which arrive as text."""
    known = _FLAGS.get(str(value).lower()) if isinstance(value, bool | int | str) else None
    if known is None:
        raise ValueError("must be true or false")
    return known


def whole(value: object) -> int:
    """A whole number, also as text."""
    plain = number(value)
    if plain is None or not plain.is_integer():
        raise ValueError("must be a whole number")
    return int(plain)


def one_of(*choices: str) -> Read[Any]:
    words = " or ".join(filter(None, (", ".join(map(repr, choices[:-1])), repr(choices[-1]))))

    def read(value: object) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise ValueError(f"must be one of {words}")

    return read


def within(
    read: Read[T], *, above: float | None = None, least: float | None = None, most: float | None = None
) -> Read[T]:
    """What `read` gives, if it is within the limits."""

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

    return limited


def optional(read: Read[T]) -> Read[T | None]:
    return lambda value: None if value is None else read(value)


def instance(of: type[T]) -> Read[T]:
    """The very object, which no file can make."""

    def read(value: object) -> T:
        if isinstance(value, of):
            return value
        raise ValueError(f"has the wrong type: {kind(value)}")

    return read


def section(of: type[T]) -> Read[T]:
    """Settings within settings: the object, or a mapping of its fields."""

    def read(value: object) -> T:
        if isinstance(value, Mapping):
            return of(**{str(name): item for name, item in cast("Mapping[object, object]", value).items()})
        return instance(of)(value)

    return read
