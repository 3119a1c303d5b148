"""Transforms of tools: other names, descriptions and annotations; fixed, hidden or narrowed arguments.

A transform changes what a client sees; `ToolShape.sent` turns the client's arguments into the server's.
Arguments that are valid for the schema that a client sees are valid for the schema of the server: where the
schema cannot guarantee that, the arguments are checked before they are sent. A transform that does not fit
its tool never allows more: the tool is left out, with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, cast

from mooring.core.callers import CallContext, call_context
from mooring.core.text import did_you_mean, line
from mooring.core.types import EMPTY, Tool
from mooring.core.value import Value, replace

__all__ = [
    "CallContext",
    "Shaped",
    "ToolShape",
    "TransformError",
    "call_context",
    "described",
    "placeholders",
    "shape_tools",
    "transformed",
]

MAX_STEPS = 5_000
"""Most parts of a schema that one check visits."""
SOURCES = ("principal", "session", "header:NAME")
"""Names of placeholders, as in `${principal}`."""
_PLACEHOLDER = r"\$(\$)?\{([^{}]*)\}"
_JOINT_CONSTRAINTS = frozenset(
    (
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "maxProperties"),
        *("dependentRequired", "dependentSchemas", "dependencies", "$ref", "$dynamicRef", "$recursiveRef"),
    )
)
"""Keywords of a whole object that an added or missing member can break."""
_NAMED = frozenset(("$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"))
_DEFINITIONS = ("#/$defs/", "#/definitions/")
_ORIGINAL = "mooring_original"


class TransformError(ValueError):
    """The arguments of a call do not fit its transform. The message holds no values."""


class ArgumentSettings(Protocol):
    """Settings for one argument. Values are in a tuple of one item, because null is a value."""

    @property
    def value(self) -> tuple[Any] | None: ...
    @property
    def default(self) -> tuple[Any] | None: ...
    @property
    def hide(self) -> bool: ...
    @property
    def enum(self) -> tuple[Any, ...] | None: ...
    @property
    def description(self) -> str | None: ...


class TransformSettings(Protocol):
    """Settings for one tool, or for one of its presets."""

    @property
    def name(self) -> str | None: ...
    @property
    def title(self) -> str | None: ...
    @property
    def description(self) -> str | None: ...
    @property
    def hide(self) -> bool: ...
    @property
    def annotations(self) -> Mapping[str, Any]: ...
    @property
    def arguments(self) -> Mapping[str, ArgumentSettings]: ...
    @property
    def presets(self) -> Mapping[str, TransformSettings]: ...


class Shaped(Value):
    """The tools of one server after its transforms."""

    tools: tuple[Tool, ...]
    warnings: tuple[str, ...] = ()
    hidden: Mapping[str, str] = EMPTY
    """Own names of tools that are left out, each with the reason."""


class ToolShape(Value):
    """The transform of one tool: its shown name, and what its arguments become."""

    name: str
    """Name of the tool, instead of the server's own name."""
    original: Tool
    """The tool before this transform; it may have a shape of its own."""
    arguments: Mapping[str, ArgumentSettings] = EMPTY
    checked: bool = False
    """Whether arguments are compared with the original schema before they are sent."""

    @property
    def definition(self) -> Tool:
        """The server's own definition."""
        inner = self.original.shape
        return self.original if inner is None else inner.definition

    def sent(self, given: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """Return the arguments for the server.

        Raises:
            TransformError: They do not fit.
        """
        made = dict(given)
        for name, rule in self.arguments.items():
            there = name in made
            if rule.value is not None:
                value = filled(rule.value[0], context, name)
                if there and made[name] != value:
                    raise TransformError(f"argument {name!r} is fixed by the configuration; leave it out")
                made[name] = value
            elif rule.hide and there:
                raise TransformError(f"argument {name!r} is not available; leave it out")
            elif not there and rule.default is not None:
                made[name] = filled(rule.default[0], context, name)
            elif there and rule.enum is not None and not self._allowed(name, made[name]):
                shown = line(", ".join(map(repr, self._allowed_values[name])), 300)
                raise TransformError(f"argument {name!r} must be one of: {shown}")
        if self.checked and (problem := self._problem(made)) is not None:
            raise TransformError(problem)
        inner = self.original.shape
        return made if inner is None else inner.sent(made, context)

    @cached_property
    def _allowed_values(self) -> Mapping[str, tuple[Any, ...]]:
        return {
            name: _usable(self.original.input_schema, name, rule.enum)
            for name, rule in self.arguments.items()
            if rule.enum is not None
        }

    def _allowed(self, name: str, value: Any) -> bool:
        return _fits_enum(self.original.input_schema, name, value, self._allowed_values[name])

    def _problem(self, arguments: dict[str, Any]) -> str | None:
        found = _violation(self.original.input_schema, arguments)
        if found is None:
            return None
        where = ".".join(map(str, found)) or "the arguments"
        return f"{line(where, 100)} does not fit the schema of the server"


def shape_tools(tools: Sequence[Tool], transforms: Mapping[str, TransformSettings]) -> Shaped:
    """Return the tools with the transforms applied. `Tool.name` is the name that a transform is for.

    Args:
        tools: All tools of one server.
        transforms: By name of the tool.
    """
    taken = {tool.name for tool in tools if tool.name not in transforms}
    made, warnings, hidden = list[Tool](), list[str](), dict[str, str]()
    server = tools[0].server if tools else ""
    for tool in tools:
        transform = transforms.get(tool.name)
        if transform is None:
            made.append(tool)
            continue
        for name, variant in _variants(tool.name, transform):
            problems = list[str]()
            shown = None if variant.hide else _shaped(tool, name, variant, problems)
            if variant.hide:
                hidden[name] = "`hide` in its transform"
            elif shown is None:
                hidden[name] = problems[0]
                problems = [f"{problem}; the tool is left out" for problem in problems[:1]]
            elif name in taken:
                hidden[name] = "another tool has the name that its transform gives it"
                problems = [f"the name {name!r} is taken by another tool; the tool is left out"]
            else:
                taken.add(name)
                made.append(shown)
            warnings += (_warning(server, tool.name, problem) for problem in problems)
    if tools:
        names = {tool.name for tool in tools}
        for name in transforms.keys() - names:
            near = did_you_mean(name, names)
            hint = f"did you mean {near!r}?" if near else "see `mooring tools` for its tools"
            warnings.append(_warning(server, name, f"the server has no such tool; {hint}"))
    return Shaped(tools=tuple(made), warnings=tuple(warnings), hidden=hidden)


def described(tool: Tool) -> list[str]:
    """Return lines for a person: what a client sees instead of the server's own tool."""
    shape = tool.shape
    if shape is None:
        return []
    known = shape.definition
    lines = [f"shown as {line(shape.name, 80)!r}"] if shape.name != known.remote_name else []
    if tool.title != known.title:
        lines.append(f"title: {line(tool.title or '', 200)}")
    if tool.description != known.description:
        lines.append(f"description: {line(tool.description, 200)}")
    for name, value in tool.annotations.items():
        if known.annotations.get(name) != value:
            lines.append(f"annotation {line(name, 80)}: {line(repr(value), 80)}")
    while shape is not None:
        lines += (f"argument {line(name, 80)}: {_rule_text(rule)}" for name, rule in shape.arguments.items())
        shape = shape.original.shape
    return lines


def transformed(
    server: str,
    tools: Sequence[Tool],
    transforms: Mapping[str, Any],
    profiles: Mapping[str, Mapping[str, Any]],
) -> tuple[tuple[str, Tool], ...]:
    """Return the tools of a server with a transform, as clients see them, each with its profile.

    Args:
        server: The server.
        tools: Its own tools.
        transforms: Its transforms.
        profiles: Transforms of each profile, by `server/tool`.
    """
    whole = shape_tools(tools, transforms).tools
    found = [("", tool) for tool in whole if tool.shape is not None]
    start = f"{server}/"
    for name, given in profiles.items():
        own = {key.removeprefix(start): one for key, one in given.items() if key.startswith(start)}
        shown = shape_tools(whole, own).tools if own else ()
        found += [(name, tool) for tool in shown if tool not in whole]
    return tuple(found)


def placeholders(value: Any) -> Iterator[str]:
    """Return the names of the placeholders in a JSON value, such as `header:X-Team`."""
    if isinstance(value, str):
        yield from (found[2] for found in re.finditer(_PLACEHOLDER, value) if not found[1])
    elif isinstance(value, Mapping):
        for item in cast("Mapping[str, Any]", value).values():
            yield from placeholders(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[Any]", value):
            yield from placeholders(item)


def filled(value: Any, context: CallContext, name: str) -> Any:
    """Return a value with its placeholders replaced.

    Raises:
        TransformError: The caller has no value for one of them.
    """
    if isinstance(value, str):
        if "${" not in value:
            return value
        return re.sub(_PLACEHOLDER, lambda found: _looked_up(found, context, name), value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: filled(item, context, name) for key, item in items}
    if isinstance(value, list | tuple):
        return [filled(item, context, name) for item in cast("list[Any]", value)]
    return value


def _looked_up(found: re.Match[str], context: CallContext, name: str) -> str:
    if found[1]:
        return found[0][1:]
    kind, _, header = found[2].partition(":")
    value = (
        context.headers.get(header.lower())
        if kind == "header"
        else context.principal
        if kind == "principal"
        else context.shown_session
    )
    if not value:
        source = f"header {header!r}" if kind == "header" else kind
        raise TransformError(f"argument {name!r} comes from the {source} of the caller, which has none")
    return value


# --- one tool


class _Preset(Value):
    """A preset with the settings that it inherits from its tool."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    hide: bool = False
    annotations: Mapping[str, Any] = EMPTY
    arguments: Mapping[str, ArgumentSettings] = EMPTY
    presets: Mapping[str, TransformSettings] = EMPTY


def _variants(name: str, transform: TransformSettings) -> Iterator[tuple[str, TransformSettings]]:
    """Return the shown tools that one tool becomes, by name."""
    yield transform.name or name, transform
    for preset, own in transform.presets.items():
        yield (
            preset,
            _Preset(
                title=own.title or transform.title,
                description=own.description or transform.description,
                hide=own.hide,
                annotations={**transform.annotations, **own.annotations},
                arguments={**transform.arguments, **own.arguments},
            ),
        )


def _shaped(tool: Tool, name: str, transform: TransformSettings, problems: list[str]) -> Tool | None:
    """Return the tool as a client sees it; None with a problem if the transform does not fit."""
    schema, rules, checked = tool.input_schema, dict[str, ArgumentSettings](), False
    known = _members(schema)
    for argument, rule in transform.arguments.items():
        if argument not in known:
            near = did_you_mean(argument, known)
            hint = f"; did you mean {near!r}?" if near else ""
            problem = f"it has no argument {argument!r}{hint}"
            if rule.value is not None or rule.enum is not None or rule.hide:
                problems.insert(0, problem)
                return None
            problems.append(problem)
            continue
        problem, uncertain = _rule_problem(schema, argument, rule)
        if problem is not None:
            problems.insert(0, problem)
            return None
        rules[argument] = rule
        adds = rule.value is not None or rule.default is not None
        checked = checked or uncertain or ((adds or rule.hide) and _has_joint_constraints(schema))
    shape = ToolShape(name=name, original=tool, arguments=rules, checked=checked)
    shown = _shown_schema(schema, rules) if rules else schema
    changes: dict[str, Any] = {"name": name, "input_schema": shown, "shape": shape}
    if transform.title is not None:
        changes["title"] = transform.title
    if transform.description is not None:
        changes["description"] = transform.description
    if transform.annotations:
        changes["annotations"] = {**tool.annotations, **transform.annotations}
    return replace(tool, **changes)


def _rule_problem(schema: Mapping[str, Any], name: str, rule: ArgumentSettings) -> tuple[str | None, bool]:
    """Return why a rule does not fit the schema, if so; and whether calls must be checked."""
    fixed = rule.value or rule.default
    if rule.enum is not None:
        usable = _usable(schema, name, rule.enum)
        if not usable:
            return f"the schema of the server allows none of the values of 'enum' of {name!r}", False
        if fixed is not None and not _fits_enum(schema, name, fixed[0], usable):
            return f"the value of {name!r} is not in its 'enum'", False
    if fixed is None:
        needed = rule.hide and name in _required(schema)
        return (f"{name!r} is required and hidden; give it a 'value'" if needed else None), False
    if any(placeholders(fixed[0])):
        return None, True
    violation = _violation(_only_members(schema), {name: fixed[0]})
    if violation is not None:
        return f"the schema of the server does not allow the value of {name!r}", False
    return None, False


def _has_joint_constraints(schema: Mapping[str, Any]) -> bool:
    return any(key in _JOINT_CONSTRAINTS for key in schema) or any(
        key in _NAMED for part in _parts(schema) for key in part
    )


def _shown_schema(schema: Mapping[str, Any], rules: Mapping[str, ArgumentSettings]) -> Mapping[str, Any]:
    members, required = dict(_members(schema)), list(_required(schema))
    for name, rule in rules.items():
        if rule.value is not None or rule.hide:
            del members[name]
        else:
            members[name] = _shown_member(schema, name, rule)
        if (rule.value is not None or rule.default is not None) and name in required:
            required.remove(name)
    shown: dict[str, Any] = {**schema, "properties": members, "required": required}
    if not required:
        del shown["required"]
    targets = {part["$ref"] for part in _parts(schema) if isinstance(part.get("$ref"), str)}
    if any(target.startswith("#") and not target.startswith(_DEFINITIONS) for target in targets):
        # Parts of the schema refer to members, or to the whole: let them refer to the original.
        shown = cast("dict[str, Any]", _retargeted(shown))
        definitions = cast("Mapping[str, Any]", shown.get("$defs", EMPTY))
        shown["$defs"] = {**definitions, _ORIGINAL: _retargeted(schema)}
    return shown


def _shown_member(schema: Mapping[str, Any], name: str, rule: ArgumentSettings) -> Any:
    """Return the schema of a member that stays visible: never wider than the original."""
    member: Any = _members(schema)[name]
    if not isinstance(member, Mapping):
        member = {} if member is True else {"not": {}}
    shown: dict[str, Any] = dict(cast("Mapping[str, Any]", member))
    if rule.enum is not None:
        values = list(_usable(schema, name, rule.enum))
        if _is_list(shown):
            shown["items"] = {"enum": values}
        else:
            kept = {key: shown[key] for key in ("title", "description", "type") if key in shown}
            if "default" in shown and _among(shown["default"], values):
                kept["default"] = shown["default"]
            shown = {**kept, "enum": values}
    if rule.default is not None and not any(placeholders(rule.default[0])):
        shown["default"] = rule.default[0]
    if rule.description is not None:
        shown["description"] = rule.description
    return shown


def _usable(schema: Mapping[str, Any], name: str, values: Iterable[Any] | None) -> tuple[Any, ...]:
    """Return the values that the schema of the server allows for this argument, or for items of it."""
    member, base = _member(schema, name), _only_members(schema)
    if _is_list(member):
        items: Any = member.get("items", True)
        if isinstance(items, list) or "prefixItems" in member:
            return ()
        base = {**base, "properties": {**_members(schema), name: {"items": items}}}
        return tuple(value for value in values or () if _violation(base, {name: [value]}) is None)
    return tuple(value for value in values or () if _violation(base, {name: value}) is None)


def _fits_enum(schema: Mapping[str, Any], name: str, value: Any, allowed: Iterable[Any]) -> bool:
    """Whether the value is allowed; for an argument that is a list, each of its items."""
    if _is_list(_member(schema, name)):
        return isinstance(value, list) and all(_among(item, allowed) for item in cast("list[Any]", value))
    return _among(value, allowed)


def _among(value: Any, values: Iterable[Any]) -> bool:
    """Whether a JSON value is one of these. True is not 1."""
    return any(isinstance(value, bool) == isinstance(one, bool) and value == one for one in values)


# --- schemas


def _members(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: object = schema.get("properties")
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else EMPTY


def _member(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: object = _members(schema).get(name)
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else EMPTY


def _is_list(member: Mapping[str, Any]) -> bool:
    return member.get("type") == "array"


def _required(schema: Mapping[str, Any]) -> list[str]:
    found: object = schema.get("required")
    items = cast("list[object]", found) if isinstance(found, list) else []
    return [name for name in items if isinstance(name, str)]


def _only_members(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema without rules about which members there are."""
    left_out = _JOINT_CONSTRAINTS | {"required", "minProperties"}
    return {key: value for key, value in schema.items() if key not in left_out}


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    left: list[Any] = [schema]
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            fields = cast("Mapping[str, Any]", part)
            yield fields
            left.extend(fields.values())
        elif isinstance(part, list):
            left.extend(cast("list[Any]", part))


def _retargeted(part: Any) -> Any:
    """Return a schema whose references lead into the original."""
    if isinstance(part, Mapping):
        fields = cast("Mapping[str, Any]", part)
        made = {key: _retargeted(value) for key, value in fields.items()}
        target = fields.get("$ref")
        if isinstance(target, str) and target.startswith("#"):
            made["$ref"] = f"#/$defs/{_ORIGINAL}{target[1:]}"
        return made
    return [_retargeted(item) for item in cast("list[Any]", part)] if isinstance(part, list) else part


class _PatternTooLong(Exception):
    pass


def _violation(schema: Mapping[str, Any], value: Any) -> tuple[str | int, ...] | None:
    """Return where a value breaks a schema; None if it fits, or if that cannot be determined."""
    from mooring.core.schema.patterns import linear_match  # lazy: only with transforms
    from mooring.core.schema.validate import Validator

    try:
        found = Validator(schema, matches=linear_match, tick=_counter()).first(value)
    except Exception:  # an untrusted schema can be wrong in any way; the server checks its arguments, too
        return None
    return None if found is None else found.path


def _counter() -> Callable[[], None]:
    left = MAX_STEPS

    def tick() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise _PatternTooLong

    return tick


# --- messages


def _warning(server: str, tool: str, problem: str) -> str:
    end = "" if problem.endswith("?") else "."
    return f"Server {line(server, 80)!r}, transform of tool {line(tool, 80)!r}: {problem}{end}"


def _rule_text(rule: ArgumentSettings) -> str:
    words = list[str]()
    if rule.value is not None:
        words.append(f"always {line(repr(rule.value[0]), 120)}, hidden")
    elif rule.hide:
        words.append("hidden")
    if rule.default is not None:
        words.append(f"default {line(repr(rule.default[0]), 120)}")
    if rule.enum is not None:
        words.append(f"one of {line(', '.join(map(repr, rule.enum)), 200)}")
    if rule.description is not None:
        words.append("other description")
    return ", ".join(words)
