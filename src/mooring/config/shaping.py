"""Settings of transforms, policy rules, the external decision and guards."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

from mooring.config.validate import (
    InvalidEntryError,
    Problem,
    Settings,
    as_json,
    check_url_text,
    flag,
    kind,
    list_of_text,
    number,
    one_of,
    optional,
    seconds,
    section,
    setting,
    shown,
    some_text,
    within,
)
from mooring.core.rules import LONGEST_RULE, Verdict
from mooring.core.transforms import SOURCES, placeholders
from mooring.core.types import EMPTY

__all__ = [
    "ArgumentTransform",
    "BudgetSettings",
    "DecideSettings",
    "GuardSettings",
    "Preset",
    "Rule",
    "SecretsGuard",
    "Transform",
    "named",
    "rules",
    "transforms",
]

S = TypeVar("S", bound=Settings)
_TOOL_NAME = r"[A-Za-z0-9_.-]{1,64}"
_HEADER = r"[A-Za-z0-9-]{1,64}"
_CREDENTIALS = frozenset(("authorization", "proxy-authorization", "cookie", "mcp-session-id"))
"""Headers that hold credentials of the gateway's client: no server may get them."""
_MOST_RULES = 200


def named(of: type[S], what: str) -> Callable[[object], Mapping[str, S]]:
    """Return a converter for a mapping of names to settings."""
    read_one = section(of)

    def read(value: object) -> Mapping[str, S]:
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a mapping of {what}, not {kind(value)}")
        found: dict[str, S] = {}
        for name, item in cast("Mapping[object, object]", value).items():
            text = str(name)
            try:
                found[text] = read_one({} if item is None else item)
            except InvalidEntryError as error:
                raise InvalidEntryError(
                    tuple(
                        Problem(field=f"{text}.{one.field}" if one.field else text, message=one.message)
                        for one in error.problems
                    )
                ) from None
            except ValueError as problem:
                raise InvalidEntryError((Problem(field=text, message=str(problem)),)) from None
        return MappingProxyType(found)

    return read


# --- transforms


def _boxed(value: object) -> tuple[Any]:
    found = as_json(value)
    for source in placeholders(found):
        head, _, header = source.partition(":")
        if head == "header" and re.fullmatch(_HEADER, header):
            if header.lower() in _CREDENTIALS:
                raise ValueError(f"must not pass on the header {header!r}: it holds the client's credentials")
        elif source not in ("principal", "session"):
            known = ", ".join(f"${{{name}}}" for name in SOURCES)
            raise ValueError(f"holds ${{{source[:40]}}}; known are {known}; write $${{ to mean the text")
    return (found,)


def _values(value: object) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("must be a list of at least one value")
    return tuple(as_json(item) for item in cast("list[object]", value))


def _tool_name(value: object) -> str:
    text = some_text(value)
    if not re.fullmatch(_TOOL_NAME, text):
        raise ValueError("must be 1 to 64 letters, digits, '_', '-' or '.'")
    return text


def _annotations(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping such as {{readOnlyHint: true}}, not {kind(value)}")
    return MappingProxyType(cast("dict[str, Any]", as_json(cast("object", value))))


class ArgumentTransform(Settings):
    """Changes of one argument of a tool. In `value` and `default`, `${principal}`, `${session}` and
    `${header:NAME}` are replaced by the caller's values."""

    value: tuple[Any] | None = setting(_boxed, default=None)
    """Always sent; clients do not see the argument."""
    default: tuple[Any] | None = setting(_boxed, default=None)
    """Sent when the client leaves the argument out."""
    hide: bool = setting(flag, default=False)
    """Clients neither see nor send it."""
    enum: tuple[Any, ...] | None = setting(optional(_values), default=None)
    """The only values that clients may send; for a list, its items."""
    description: str | None = setting(optional(some_text), default=None)
    """Replaces the server's description of the argument."""

    def _check(self) -> None:
        if self.value is not None and self.default is not None:
            raise ValueError("has both 'value' and 'default'; keep the one that is meant")


_arguments = named(ArgumentTransform, "argument names")


class Preset(Settings):
    """One more tool that calls the same tool of the server. It inherits the arguments of the transform."""

    title: str | None = setting(optional(some_text), default=None)
    """Name for people."""
    description: str | None = setting(optional(some_text), default=None)
    """Replaces the server's description."""
    annotations: Mapping[str, Any] = setting(_annotations, default=EMPTY)
    """Over those of the transform."""
    arguments: Mapping[str, ArgumentTransform] = setting(_arguments, default=EMPTY)
    """Over those of the transform, by name."""

    @property
    def name(self) -> str | None:
        """Presets are named by their key."""
        return None

    @property
    def hide(self) -> bool:
        return False

    @property
    def presets(self) -> Mapping[str, Preset]:
        return EMPTY


def _presets(value: object) -> Mapping[str, Preset]:
    found = named(Preset, "names of new tools")(value)
    for name in found:
        try:
            _tool_name(name)
        except ValueError as problem:
            raise InvalidEntryError((Problem(field=name[:80], message=f"as a name {problem}"),)) from None
    return found


class Transform(Settings):
    """How clients see one tool of a server."""

    name: str | None = setting(optional(_tool_name), default=None)
    """Replaces the server's own name."""
    title: str | None = setting(optional(some_text), default=None)
    """Replaces the server's name for people."""
    description: str | None = setting(optional(some_text), default=None)
    """Replaces the server's description."""
    hide: bool = setting(flag, default=False)
    """Leaves the tool out; its presets stay."""
    annotations: Mapping[str, Any] = setting(_annotations, default=EMPTY)
    """Over those of the server. Policies apply to both: a transform makes none milder."""
    arguments: Mapping[str, ArgumentTransform] = setting(_arguments, default=EMPTY)
    """Changes of its arguments, by name."""
    presets: Mapping[str, Preset] = setting(_presets, default=EMPTY)
    """More tools that call the same tool of the server, by name."""


transforms = named(Transform, "tool names to transforms")
"""Converter for `transforms`."""


def asks_for_caller(found: Mapping[str, Transform]) -> bool:
    """Whether a transform passes on facts about the caller."""
    each = [one.arguments for one in found.values()]
    each += [preset.arguments for one in found.values() for preset in one.presets.values()]
    boxes = [box for rules in each for rule in rules.values() for box in (rule.value, rule.default)]
    return any(True for box in boxes if box is not None for _ in placeholders(box[0]))


# --- policy


def _expression(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = some_text(value).strip()
    if not text:
        raise ValueError("must be an expression; 'true' always applies")
    if len(text) > LONGEST_RULE:
        raise ValueError(f"must have at most {LONGEST_RULE:,} characters")
    return text


class Rule(Settings):
    """One rule of a policy."""

    when: str = setting(_expression)
    """Expression (CEL) over `tool`, `server`, `arguments`, `principal`, `profile`, `annotations`, `now`."""
    then: Verdict = setting(one_of("allow", "ask", "deny"))
    """The decision if the expression is true."""
    reason: str | None = setting(optional(some_text), default=None)
    """For the person or model whose call is denied."""


def rules(value: object) -> tuple[Rule, ...]:
    """Convert a list of rules."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of rules with 'when' and 'then', not {kind(value)}")
    items = cast("list[object]", value)
    if len(items) > _MOST_RULES:
        raise ValueError(f"must have at most {_MOST_RULES} rules")
    read, found = section(Rule), list[Rule]()
    for number_, item in enumerate(items, 1):
        try:
            found.append(read(item))
        except InvalidEntryError as error:
            raise InvalidEntryError(
                tuple(
                    Problem(field=".".join(filter(None, (str(number_), one.field))), message=one.message)
                    for one in error.problems
                )
            ) from None
        except ValueError as problem:
            raise InvalidEntryError((Problem(field=str(number_), message=str(problem)),)) from None
    return tuple(found)


class DecideSettings(Settings):
    """An HTTP service that decides about calls, such as OPA or a Cedar agent."""

    url: str | None = setting(optional(lambda value: check_url_text(some_text(value))), default=None)
    """Address that gets `{"input": {…}}` by POST; None: only `Host(decide=…)` is asked."""
    timeout: float = setting(within(seconds, above=0, most=60), default=2.0)
    """Seconds for one decision, also of `Host(decide=…)`. After them the call is denied."""


# --- guards


def _amount(value: object) -> float:
    found = number(value)
    if found is None or not 0 <= found < 1e15:
        raise ValueError("must be a number, not negative")
    return found


def _costs(value: object) -> Mapping[str, float]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of globs of 'server/tool' to numbers, not {kind(value)}")
    found: dict[str, float] = {}
    for glob, cost in cast("Mapping[object, object]", value).items():
        try:
            found[str(glob)] = _amount(cost)
        except ValueError as problem:
            raise ValueError(f"{shown(str(glob))} {problem}") from None
    return MappingProxyType(found)


class SecretsGuard(Settings):
    """Denies calls whose arguments hold a secret."""

    enabled: bool = setting(flag, default=True)
    """Whether arguments are searched."""
    allow: tuple[str, ...] = setting(list_of_text, default=())
    """Globs of `server/tool` that may get secrets."""


class BudgetSettings(Settings):
    """Limits what each principal spends in a day (UTC)."""

    per_day: float = setting(_amount)
    """The most that one principal may spend."""
    costs: Mapping[str, float] = setting(_costs, default=EMPTY)
    """Cost of a call by glob of `server/tool`; the first that matches counts. Others cost 1."""


def _secrets(value: object) -> SecretsGuard:
    if isinstance(value, bool | str):  # `true` of YAML is text
        return SecretsGuard(enabled=flag(value))
    return section(SecretsGuard)(value)


def _budget(value: object) -> BudgetSettings:
    return (
        BudgetSettings(per_day=_amount(value))
        if isinstance(value, int | float | str)
        else section(BudgetSettings)(value)
    )


class GuardSettings(Settings):
    """The built-in guards."""

    secrets: SecretsGuard | None = setting(optional(_secrets), default=None)
    """True, or settings."""
    budget: BudgetSettings | None = setting(optional(_budget), default=None)
    """Calls per principal and day, or settings."""
    timeout: float = setting(within(seconds, above=0, most=60), default=5.0)
    """Seconds for each guard. After them the call is denied."""
