"""Frozen values, equal by their fields, that cost nearly nothing to define.

`@dataclass(frozen=True)` writes and compiles six functions for each class, which takes longer than
all the rest of importing it. Classes of which there are many, but few objects, share these instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from threading import RLock
from typing import Any, ClassVar, Never, Self, TypeVar, cast, dataclass_transform

__all__ = ["UNSET", "Field", "Value", "field", "replace"]

UNSET: Any = object()
"""Stands where nothing was given."""


class Field:
    """What the class of a value says of one of its fields, beside its type."""

    def __init__(self, default: Any = UNSET, *, shown: bool = True, compare: bool = True) -> None:
        self.default, self.shown, self.compare = default, shown, compare


def field(*, default: Any = UNSET, shown: bool = True, compare: bool = True) -> Any:
    """A field that is not `shown` in the repr of its value, or of no account when values are compared."""
    return Field(default, shown=shown, compare=compare)


class _Fields:
    """Makes a dataclass of a value's class when somebody asks for its fields: few are ever asked."""

    _one_at_a_time = RLock()
    """`dataclass` takes the class apart: a second thread would find half of it."""

    def __get__(self, value: object, cls: type) -> Mapping[str, Any]:
        with self._one_at_a_time:
            if cls.__dict__["__dataclass_fields__"] is self:
                _make_dataclass(cls)
            return cls.__dict__["__dataclass_fields__"]


def _make_dataclass(cls: type) -> None:
    import dataclasses

    for name in _own_fields(cls):
        said = vars(cls).get(name, UNSET)
        about = said if isinstance(said, Field) else Field(said)
        given: dict[str, Any] = {"repr": about.shown, "compare": about.compare}
        if about.default is not UNSET:
            # What has no hash is refused as a default, as if it could be changed.
            plain = type(about.default).__hash__ is not None
            given |= {"default": about.default} if plain else {"default_factory": partial(_it, about.default)}
        setattr(cls, name, dataclasses.field(**given))
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)


def _own_fields(cls: type) -> list[str]:
    return [name for name, kind in cls.__annotations__.items() if not str(kind).startswith("ClassVar")]


def _it(default: Any) -> Any:
    return default


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Value:
    """Base of frozen dataclasses: what `dataclasses` offers works as for any other."""

    _compared: ClassVar[tuple[str, ...] | None] = None
    """What equality goes by, where that is not everything."""
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _names: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        own = _own_fields(cls)
        # A default is shared by all values: it must be as immutable as they are.
        defaults, apart = dict(cls._defaults), set[str]()
        for name in own:
            default: Any = cls.__dict__.get(name, UNSET)
            if isinstance(default, Field):
                if not default.compare:
                    apart.add(name)
                default = default.default
            if default is not UNSET:
                defaults[name] = default
        names = [*(cls._names if cls._compared is None else cls._compared), *own]
        if apart or cls._compared is not None:
            cls._compared = tuple(name for name in names if name not in apart)
        cls._defaults, cls._names = defaults, cls._names.union(own)
        cls.__dataclass_fields__ = cast("Any", _Fields())

    def __init__(self, **given: Any) -> None:
        values = {**self._defaults, **given}
        if values.keys() != self._names:
            wrong = ", ".join(map(repr, sorted(values.keys() ^ self._names)))
            raise TypeError(f"{type(self).__name__} is given, or lacks, {wrong}")
        self.__dict__.update(values)

    @classmethod
    def holding(cls, fields: dict[str, Any]) -> Self:
        """A value around this very dictionary, which has all fields and is nobody else's.

        For where there are thousands: it takes a quarter of the time.
        """
        new = object.__new__(cls)
        object.__setattr__(new, "__dict__", fields)
        return new

    @classmethod
    def field_names(cls) -> frozenset[str]:
        """The names of all fields."""
        return cls._names

    def __setattr__(self, name: str, value: object) -> Never:
        raise _frozen(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> Never:
        raise _frozen(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs, names = self.__dict__, other.__dict__, self._compared
        return mine == theirs if names is None else all(mine[name] == theirs[name] for name in names)

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__[f.name] for f in _fields(self) if f.compare))

    def __repr__(self) -> str:
        inside = ", ".join(f"{f.name}={self.__dict__[f.name]!r}" for f in _fields(self) if f.repr)
        return f"{type(self).__name__}({inside})"


V = TypeVar("V", bound=Value)


def replace(value: V, **changes: Any) -> V:
    """Another value like this one, with these fields instead."""
    return type(value)(**{**vars(value), **changes})


def _fields(value: Value) -> tuple[Any, ...]:
    from dataclasses import fields

    return fields(cast("Any", value))


def _frozen(problem: str) -> AttributeError:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(problem)
