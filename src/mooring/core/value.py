"""Frozen values that are compared by their fields and cost almost nothing to define.

`@dataclass(frozen=True)` generates and compiles six functions for each class, which takes longer than the
rest of the import. Subclasses of `Value` share one implementation instead. The signature, the help text and
the dataclass fields of a class are built on first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import partial
from threading import RLock
from typing import Any, ClassVar, Never, Self, TypeVar, cast, dataclass_transform

__all__ = ["UNSET", "Field", "Value", "check_arguments", "field", "replace"]

UNSET: Any = object()
"""Default of a required field."""


class Field:
    """Properties of one field beside its type."""

    def __init__(self, default: Any = UNSET, *, shown: bool = True, compare: bool = True) -> None:
        self.default, self.shown, self.compare = default, shown, compare

    def __repr__(self) -> str:
        return "required" if self.default is UNSET else repr(self.default)


def field(*, default: Any = UNSET, shown: bool = True, compare: bool = True) -> Any:
    """Declare a field.

    Args:
        default: Shared by all values, so it must be immutable. Without it the field is required.
        shown: Whether the field is part of the repr.
        compare: Whether the field is part of equality and hash.
    """
    return Field(default, shown=shown, compare=compare)


class _DataclassFields:
    """Turns a class into a dataclass when `dataclasses` first asks for its fields."""

    _lock = RLock()
    """`dataclass` modifies the class in steps, which a second thread must not see."""

    def __get__(self, value: object, cls: type) -> Mapping[str, Any]:
        with self._lock:
            if cls.__dict__["__dataclass_fields__"] is self:
                _make_dataclass(cls)
            return cls.__dict__["__dataclass_fields__"]


def _make_dataclass(cls: type) -> None:
    import dataclasses

    for name in _own_fields(cls):
        declared = vars(cls).get(name, UNSET)
        spec = declared if isinstance(declared, Field) else Field(declared)
        options: dict[str, Any] = {"repr": spec.shown, "compare": spec.compare}
        if spec.default is not UNSET:
            # dataclasses rejects an unhashable default as mutable.
            hashable = type(spec.default).__hash__ is not None
            options |= (
                {"default": spec.default}
                if hashable
                else {"default_factory": partial(_identity, spec.default)}
            )
        setattr(cls, name, dataclasses.field(**options))
    doc, cls.__doc__ = cls.__dict__["__doc__"], "-"  # dataclass() reads it, which would build the help text
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
    cls.__doc__ = doc


def _own_fields(cls: type) -> dict[str, str]:
    """Return the names and types of the fields that this class itself declares."""
    types = ((name, str(kind)) for name, kind in cls.__annotations__.items())
    return {name: kind for name, kind in types if not kind.startswith("ClassVar")}


def _all_fields(cls: type[Value]) -> dict[str, str]:
    """Return the names and types of all fields, those of base classes first."""
    bases = [base for base in reversed(cls.__mro__) if issubclass(base, Value)]
    return {name: kind for base in bases for name, kind in _own_fields(base).items()}


def _identity(default: Any) -> Any:
    return default


class _Signature:
    """The signature of a class with one keyword argument for each field."""

    def __get__(self, value: Value | None, cls: type[Value]) -> Any:
        from inspect import Parameter, Signature, signature

        parameters = signature(cls.__init__).parameters.values()
        if value is not None or all(one.kind is not one.VAR_KEYWORD for one in parameters):
            raise AttributeError("__signature__")  # the class has an `__init__` of its own
        defaults = cls.field_defaults()
        return Signature(
            [
                Parameter(
                    name,
                    Parameter.KEYWORD_ONLY,
                    annotation=kind,
                    default=defaults.get(name, Parameter.empty),
                )
                for name, kind in _all_fields(cls).items()
            ]
        )


class _Doc:
    """The docstring of a class followed by its fields with type, default and meaning."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __get__(self, value: object, cls: type[Value]) -> str:
        from inspect import cleandoc

        lines = [cleandoc(self.text)] if self.text else []
        if fields := _all_fields(cls):
            texts, defaults = meanings(cls), cls.field_defaults()
            lines += ["", "Fields:"]
            for name, kind in fields.items():
                default = defaults.get(name, UNSET)
                if isinstance(default, Mapping):
                    default = dict(cast("Mapping[Any, Any]", default))
                lines.append(f"    {name}: {kind}" + ("" if default is UNSET else f" = {default!r}"))
                lines += (f"        {line}" for line in texts.get(name, "").splitlines())
        cls.__doc__ = text = "\n".join(lines)
        return text


def meanings(cls: type[Value]) -> dict[str, str]:
    """Return the strings that follow the fields in the source of the class and its bases."""
    import ast
    from inspect import cleandoc, getsource
    from itertools import pairwise
    from textwrap import dedent

    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not issubclass(base, Value):
            continue
        try:
            body = cast("ast.ClassDef", ast.parse(dedent(getsource(base))).body[0]).body
        except (OSError, TypeError, SyntaxError, IndexError):  # no source
            continue
        for declared, following in pairwise(body):
            match declared, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = cleandoc(text)
                case _:
                    pass
    return found


def check_arguments(cls: type[Value], names: Set[str]) -> None:
    """Raise a TypeError like Python's own unless these keyword arguments can make a value of this class."""
    if {*cls.field_defaults(), *names} == {*cls.field_names()}:
        return
    fields = _all_fields(cls)
    for name in names:
        if name not in fields:
            from mooring.core.text import did_you_mean

            near = did_you_mean(name, fields)
            hint = f". Did you mean {near!r}?" if near else ""
            raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {name!r}{hint}")
    missing = [repr(name) for name in fields if name not in names and name not in cls.field_defaults()]
    if missing:
        plural = "s" if len(missing) > 1 else ""
        listed = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        raise TypeError(
            f"{cls.__name__}() missing {len(missing)} required keyword-only argument{plural}: {listed}"
        )


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Value:
    """Base of frozen values. Subclasses are dataclasses to the functions of `dataclasses`."""

    _compared: ClassVar[tuple[str, ...] | None] = None
    """Names of the fields that equality uses; None for all."""
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _names: ClassVar[frozenset[str]] = frozenset()
    __signature__: ClassVar[Any] = _Signature()

    def __init_subclass__(cls) -> None:
        own = _own_fields(cls)
        defaults, excluded = dict(cls._defaults), set[str]()
        for name in own:
            default: Any = cls.__dict__.get(name, UNSET)
            if isinstance(default, Field):
                if not default.compare:
                    excluded.add(name)
                default = default.default
            if default is not UNSET:
                defaults[name] = default
        names = [*(cls._names if cls._compared is None else cls._compared), *own]
        if excluded or cls._compared is not None:
            cls._compared = tuple(name for name in names if name not in excluded)
        cls._defaults, cls._names = defaults, cls._names.union(own)
        cls.__dataclass_fields__ = cast("Any", _DataclassFields())
        cls.__doc__ = cast("Any", _Doc(cls.__dict__.get("__doc__")))

    def __init__(self, **fields: Any) -> None:
        values = {**self._defaults, **fields}
        if values.keys() != self._names:
            check_arguments(type(self), fields.keys())
        self.__dict__.update(values)

    @classmethod
    def holding(cls, fields: dict[str, Any]) -> Self:
        """Return a value that owns this dictionary, which must have all fields.

        Takes a quarter of the time of the constructor: use it where there are thousands.
        """
        new = object.__new__(cls)
        object.__setattr__(new, "__dict__", fields)
        return new

    @classmethod
    def field_names(cls) -> frozenset[str]:
        """Return the names of all fields."""
        return cls._names

    @classmethod
    def field_defaults(cls) -> Mapping[str, Any]:
        """Return the defaults of the fields that have one."""
        return cls._defaults

    def __setattr__(self, name: str, value: object) -> Never:
        raise _frozen(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> Never:
        raise _frozen(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs, names = self.__dict__, other.__dict__, self._compared
        if names is None and len(mine) == len(theirs):
            return mine == theirs
        # One of them holds the value of a cached property, or some fields do not count.
        return all(mine[name] == theirs[name] for name in (self._names if names is None else names))

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__[f.name] for f in _dataclass_fields(self) if f.compare))

    def __repr__(self) -> str:
        inside = ", ".join(f"{f.name}={self.__dict__[f.name]!r}" for f in _dataclass_fields(self) if f.repr)
        return f"{type(self).__name__}({inside})"


V = TypeVar("V", bound=Value)


def replace(value: V, **changes: Any) -> V:
    """Return a copy of the value with these fields changed."""
    fields = {**vars(value), **changes}
    names = value._names  # pyright: ignore[reportPrivateUsage]
    if len(fields) > len(names):  # the values of cached properties too
        fields = {name: field for name, field in fields.items() if name in names or name in changes}
    return type(value)(**fields)


def _dataclass_fields(value: Value) -> tuple[Any, ...]:
    from dataclasses import fields

    return fields(cast("Any", value))


def _frozen(problem: str) -> AttributeError:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(problem)
