"""Frozen values, equal by their fields, that cost nearly nothing to define.

`@dataclass(frozen=True)` writes and compiles six functions for each class, which takes longer than
all the rest of importing it. Classes of which there are many, but few objects, share these instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import Any, ClassVar, Never, cast, dataclass_transform

__all__ = ["Value"]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Value:
    """Base of frozen dataclasses: `replace` and `fields` work as for any other."""

    _compared: ClassVar[tuple[str, ...] | None] = None
    """What equality goes by, where that is not everything."""
    _defaults: ClassVar[Mapping[str, Any]]
    _names: ClassVar[frozenset[str]]

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
        known = fields(cast("Any", cls))
        cls._names = frozenset(f.name for f in known)
        if not all(f.compare for f in known):
            cls._compared = tuple(f.name for f in known if f.compare)
        # A default is made once and shared by all: it must be as immutable as the value.
        cls._defaults = {f.name: f.default for f in known if f.default is not MISSING} | {
            f.name: f.default_factory() for f in known if f.default_factory is not MISSING
        }

    def __init__(self, **given: Any) -> None:
        values = {**self._defaults, **given}
        if values.keys() != self._names:
            wrong = ", ".join(map(repr, sorted(values.keys() ^ self._names)))
            raise TypeError(f"{type(self).__name__} is given, or lacks, {wrong}")
        self.__dict__.update(values)

    @classmethod
    def field_names(cls) -> frozenset[str]:
        """The names of all fields."""
        return cls._names

    def __setattr__(self, name: str, value: object) -> Never:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> Never:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs, names = self.__dict__, other.__dict__, self._compared
        return mine == theirs if names is None else all(mine[name] == theirs[name] for name in names)

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__[f.name] for f in fields(cast("Any", self)) if f.compare))

    def __repr__(self) -> str:
        inside = ", ".join(f"{f.name}={self.__dict__[f.name]!r}" for f in fields(cast("Any", self)) if f.repr)
        return f"{type(self).__name__}({inside})"
