"""Frozen values: made by name, equal by their fields, never changed."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
import re
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, fields, is_dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, cast

import pytest

import mooring
from mooring import errors
from mooring.config.validate import Settings, flag, optional, section, setting, whole, within
from mooring.core.value import Value, field, replace
from mooring.errors import ConfigError


class Point(Value):
    """A place."""

    x: int
    y: int = 0


class Corner(Point):
    """A place where something ends."""

    name: str = "top"


class Line(Value):
    """A place to another one."""

    length: int

    @cached_property
    def double(self) -> int:
        return 2 * self.length


def test_a_cached_property_is_no_field() -> None:
    used, fresh = Line(length=2), Line(length=2)
    assert used.double == 4
    assert used == fresh
    assert fresh == used
    assert replace(used, length=3).double == 6
    with pytest.raises(TypeError, match="'double'"):
        replace(used, double=1)


class Inner(Settings):
    """A section."""

    on: bool = setting(flag, default=False)


class Outer(Settings):
    """Settings with a section."""

    count: int | None = setting(optional(within(whole, least=1, most=9)), default=None)
    inner: Inner = setting(section(Inner), default=Inner())


def test_a_value_is_its_fields() -> None:
    assert Point(x=1) == Point(x=1, y=0)
    assert Point(x=1) != Point(x=2)
    assert Point(x=1) != Corner(x=1)
    assert len({Point(x=1), Point(x=1), Point(x=2)}) == 2
    assert repr(Corner(x=1)) == "Corner(x=1, y=0, name='top')"
    assert replace(Corner(x=1), y=2) == Corner(x=1, y=2)
    assert Corner.field_names() == {"x", "y", "name"}


def test_a_value_cannot_be_changed() -> None:
    point: Any = Point(x=1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert point == Point(x=1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"Point\(\) missing 1 required keyword-only argument: 'x'"),
        ({"x": 1, "z": 2}, r"Point\(\) got an unexpected keyword argument 'z'"),
    ],
)
def test_missing_and_unexpected_fields_raise_type_errors_like_pythons(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        Point(**fields)


@pytest.mark.parametrize("name", mooring.__all__)
def test_every_export_has_a_signature_with_its_parameters(name: str) -> None:
    export = getattr(mooring, name)
    if callable(export):
        parameters = inspect.signature(export).parameters.values()
        assert not [
            one for one in parameters if one.kind is one.VAR_KEYWORD and one.name in ("given", "fields")
        ]


def test_the_signature_holds_types_and_defaults() -> None:
    parameters = inspect.signature(mooring.ServerConfig).parameters
    assert parameters["name"].default is inspect.Parameter.empty
    assert (parameters["call_timeout"].annotation, parameters["call_timeout"].default) == ("float", 600.0)
    assert parameters["call_timeout"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("kind", [mooring.ServerConfig, mooring.HostConfig, mooring.Result, mooring.Tool])
def test_help_lists_each_field_with_type_default_and_meaning(kind: type[Value]) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    for name, parameter in inspect.signature(kind).parameters.items():
        found = re.search(rf"^ \|      {name}: (.+)\n \|          \w*[`A-Z]", text, re.MULTILINE)
        assert found, name
        assert found[1].startswith(parameter.annotation)
        assert (" = " in found[1]) == (parameter.default is not parameter.empty)


@pytest.mark.parametrize("kind", [mooring.ServerConfig, mooring.HostConfig])
def test_unexpected_settings_raise_type_errors_with_a_suggestion(kind: Any) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__}\(\) got an unexpected keyword argument 'x'$"):
        kind(x=1)
    with pytest.raises(TypeError, match=r"'result_buget'. Did you mean 'result_budget'\?"):
        kind(result_buget=1)


@pytest.mark.parametrize("name", [name for name in errors.__all__ if isinstance(getattr(errors, name), type)])
def test_the_parameters_of_errors_are_documented(name: str) -> None:
    kind = getattr(errors, name)
    parameters = set(inspect.signature(kind).parameters) - {"message", "hint"}
    documented = "".join(base.__doc__ or "" for base in kind.__mro__ if base.__module__ == errors.__name__)
    assert [one for one in parameters if f"    {one}: " not in documented] == []


@pytest.mark.parametrize("written", [True, 1, "1", "true", "True", "t", "yes", "Y", "on"])
def test_what_people_write_for_true_is_true(written: object) -> None:
    assert flag(written) is True


@pytest.mark.parametrize("written", [False, 0, "0", "false", "FALSE", "f", "no", "n", "Off"])
def test_what_people_write_for_false_is_false(written: object) -> None:
    assert flag(written) is False


@pytest.mark.parametrize("written", [None, 2, 1.5, "", "perhaps", [], {}])
def test_anything_else_is_neither(written: object) -> None:
    with pytest.raises(ValueError, match="must be true or false"):
        flag(written)


@pytest.mark.parametrize(("written", "number"), [(5, 5), ("5", 5), (" 5 ", 5), (5.0, 5), ("-3", -3)])
def test_a_whole_number_may_be_text(written: object, number: int) -> None:
    assert whole(written) == number


@pytest.mark.parametrize("written", [None, True, 1.5, "1.5", "five", "", float("nan"), 10**400, []])
def test_what_is_no_whole_number_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        whole(written)


def test_a_section_is_given_as_itself_or_as_a_mapping_and_its_problems_have_their_place() -> None:
    given: dict[str, Any] = {"inner": {"on": "yes"}}
    assert Outer(**given) == Outer(inner=Inner(on=True))
    wrong: dict[str, Any] = {"count": 10, "inner": {"on": "perhaps", "onn": 1}}
    with pytest.raises(ConfigError) as caught:
        Outer(**wrong)
    assert str(caught.value) == (
        "'count' must be at most 9; 'inner.on' must be true or false; "
        "'inner.onn' is not a known field; did you mean 'on'?"
    )


class Tagged(Value):
    """A value with a remark that does not count."""

    name: str
    remark: str = field(default="", compare=False, shown=False)


class Dated(Tagged):
    """One with a field more."""

    year: int = 0


class Noted(Value):
    """One whose default has no hash."""

    notes: Mapping[str, str] = MappingProxyType({})


def test_what_does_not_count_does_not_count_in_values_derived_from_it() -> None:
    assert Dated(name="a", remark="x") == Dated(name="a", remark="y") != Dated(name="a", year=1)
    assert hash(Dated(name="a", remark="x")) == hash(Dated(name="a"))
    assert repr(Dated(name="a", remark="x")) == "Dated(name='a', year=0)"


def test_the_fields_of_a_value_are_those_of_a_dataclass() -> None:
    assert is_dataclass(Dated)
    assert [one.name for one in fields(cast("Any", Dated))] == ["name", "remark", "year"]
    assert [one.name for one in fields(cast("Any", Tagged(name="a")))] == ["name", "remark"]
    assert dataclasses.replace(Dated(name="a"), year=3) == Dated(name="a", year=3)
    assert [one.name for one in fields(cast("Any", Noted()))] == ["notes"]
    assert dataclasses.asdict(Tagged(name="a")) == {"name": "a", "remark": ""}


def test_another_value_like_one_is_of_its_class_and_checked_like_it() -> None:
    assert replace(Dated(name="a", remark="x"), year=3) == Dated(name="a", year=3)
    assert replace(Outer(count=1), count="2") == Outer(count=2)
    with pytest.raises(ConfigError, match="'count' must be at most 9"):
        replace(Outer(), count=10)
    with pytest.raises(TypeError, match=r"Point\(\) got an unexpected keyword argument 'z'"):
        replace(Point(x=1), z=1)


def test_a_value_that_holds_its_fields_is_like_any_other() -> None:
    point = Point.holding({"x": 1, "y": 2})
    assert point == Point(x=1, y=2)
    assert replace(point, y=3) == Point(x=1, y=3)
    with pytest.raises(FrozenInstanceError):
        cast("Any", point).x = 2


def test_threads_that_ask_for_the_fields_at_once_get_the_same() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            kinds = {f"r{number}": "str" for number in range(30)}
            hidden = {name: field(default="secret", shown=False) for name in kinds}
            one: Any = type("One", (Value,), {"__annotations__": kinds, **hidden})
            with ThreadPoolExecutor(4) as threads:
                shown = set(threads.map(repr, [one()] * 8))
            assert shown == {"One()"}
    finally:
        sys.setswitchinterval(interval)


class Own(Value):
    """A value with an `__init__` of its own."""

    a: int

    def __init__(self, text: str) -> None:
        super().__init__(a=int(text))


def test_only_a_class_has_the_signature_of_its_fields() -> None:
    assert list(inspect.signature(Own).parameters) == ["text"]
    assert not hasattr(Own("1"), "__signature__")
