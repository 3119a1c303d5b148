"""Whether a JSON value fits a JSON Schema: drafts 4 to 2020-12. Nothing is fetched. Pure.

The schema may be hostile, so the two slow operations belong to the caller: `matches` evaluates
regular expressions, and `tick` is called for every visited schema and may raise to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, cast
from urllib.parse import unquote, urldefrag, urljoin

from mooring.core.text import dumps

__all__ = ["Unresolvable", "Validator", "Violation"]


def _type(wanted: Any, value: Any, schema: Any) -> str | None:
    kinds = [wanted] if isinstance(wanted, str) else list(wanted)
    if any(_TYPES[kind](value) for kind in kinds):
        return None
    return f"{value!r} is not of type {', '.join(map(repr, kinds))}"


def _enum(wanted: Any, value: Any, schema: Any) -> str | None:
    if any(_equal(value, one) for one in wanted):
        return None
    return f"{value!r} is not one of {wanted!r}"


def _const(wanted: Any, value: Any, schema: Any) -> str | None:
    return None if _equal(value, wanted) else f"{wanted!r} was expected"


def _minimum(least: Any, value: Any, schema: Any) -> str | None:
    strict = schema.get("exclusiveMinimum") is True  # draft 4
    if not _is_number(value) or not (value <= least if strict else value < least):
        return None
    return f"{value!r} is less than {'or equal to ' if strict else ''}the minimum of {least!r}"


def _maximum(most: Any, value: Any, schema: Any) -> str | None:
    strict = schema.get("exclusiveMaximum") is True
    if not _is_number(value) or not (value >= most if strict else value > most):
        return None
    return f"{value!r} is greater than {'or equal to ' if strict else ''}the maximum of {most!r}"


def _above(least: Any, value: Any, schema: Any) -> str | None:
    return None if isinstance(least, bool) else _minimum(least, value, {"exclusiveMinimum": True})


def _below(most: Any, value: Any, schema: Any) -> str | None:
    return None if isinstance(most, bool) else _maximum(most, value, {"exclusiveMaximum": True})


def _multiple_of(step: Any, value: Any, schema: Any) -> str | None:
    if not _is_number(value):
        return None
    try:
        rest = (value / step) % 1 if isinstance(step, float) else value % step
    except OverflowError:  # the number is too large for a float: compare less exactly
        return None
    return f"{value!r} is not a multiple of {step!r}" if rest else None


def _unique(wanted: Any, value: Any, schema: Any) -> str | None:
    if wanted is not True or not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    if len({dumps(item) for item in items}) < len(items):
        return "has items that are the same"
    return None


def _required(names: Any, value: Any, schema: Any) -> str | None:
    if not isinstance(value, dict) or isinstance(names, bool):
        return None
    missing = next((name for name in names if name not in value), None)
    return None if missing is None else f"{missing!r} is a required property"


def _min_properties(least: Any, value: Any, schema: Any) -> str | None:
    if isinstance(value, dict) and len(cast("dict[str, Any]", value)) < least:
        return f"{value!r} does not have enough properties"
    return None


def _max_properties(most: Any, value: Any, schema: Any) -> str | None:
    if isinstance(value, dict) and len(cast("dict[str, Any]", value)) > most:
        return f"{value!r} has too many properties"
    return None


def _too_short(kind: type, least: Any, value: Any, schema: Any) -> str | None:
    if not isinstance(value, kind) or len(value) >= least:
        return None
    return f"{value!r} should be non-empty" if least == 1 else f"{value!r} is too short"


def _too_long(kind: type, most: Any, value: Any, schema: Any) -> str | None:
    if not isinstance(value, kind) or len(value) <= most:
        return None
    return f"{value!r} is expected to be empty" if most == 0 else f"{value!r} is too long"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return _is_number(value) and (isinstance(value, int) or cast("float", value).is_integer())


def _equal(one: Any, two: Any) -> bool:
    """Whether two JSON values are equal: 1 equals 1.0, and true does not equal 1."""
    if isinstance(one, dict) and isinstance(two, dict):
        left, right = cast("dict[str, Any]", one), cast("dict[str, Any]", two)
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(one, list) and isinstance(two, list):
        first, second = cast("list[Any]", one), cast("list[Any]", two)
        return len(first) == len(second) and all(map(_equal, first, second))
    return isinstance(one, bool) is isinstance(two, bool) and one == two


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "null": lambda value: value is None,
    "number": _is_number,
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}
_ASSERTIONS: Mapping[str, Callable[[Any, Any, Any], str | None]] = {
    "const": _const,
    "enum": _enum,
    "exclusiveMaximum": _below,
    "exclusiveMinimum": _above,
    "maxItems": partial(_too_long, list),
    "maxLength": partial(_too_long, str),
    "maxProperties": _max_properties,
    "maximum": _maximum,
    "minItems": partial(_too_short, list),
    "minLength": partial(_too_short, str),
    "minProperties": _min_properties,
    "minimum": _minimum,
    "multipleOf": _multiple_of,
    "required": _required,
    "type": _type,
    "uniqueItems": _unique,
}
"""By keyword: a function of the keyword's value, the value and the schema. Returns an error or None."""


Matches = Callable[[str, str], bool | None]
"""Whether the pattern matches the text; None when that is not known."""

_OLD = ("draft-04", "draft-06", "draft-07")
"""Dialects in which `$ref` hides the keywords beside it."""


class Unresolvable(Exception):
    """A reference names something that is not in the schema."""


class Violation:
    """The first error of a value."""

    __slots__ = ("_path", "message")

    def __init__(self, message: str) -> None:
        self.message = message
        self._path: list[str | int] = []

    def within(self, key: str | int) -> Violation:
        """Return the same error, below a key."""
        self._path.append(key)
        return self

    @property
    def path(self) -> tuple[str | int, ...]:
        """Keys and indexes of the value, from the root."""
        return tuple(reversed(self._path))


class Validator:
    """A schema, prepared for many values; for one thread at a time."""

    def __init__(self, schema: Mapping[str, Any], *, matches: Matches, tick: Callable[[], None]) -> None:
        dialect = schema.get("$schema")
        self._old = isinstance(dialect, str) and any(draft in dialect for draft in _OLD)
        self._schema, self._matches, self._tick = schema, matches, tick
        self._resources: dict[str, Any] = {}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._dynamic: dict[tuple[str, str], Any] = {}
        self._bases: dict[int, str] = {}
        self._scopes: list[str] = []
        self._index(schema)

    def first(self, value: Any) -> Violation | None:
        """The first problem of a value, or None.

        Raises:
            Unresolvable: A reference is not in the schema.
            RecursionError: References are circular.
            Exception: The schema is invalid, or `tick` has raised.
        """
        self._scopes = []
        return self._check(value, self._schema)

    def _fits(self, value: Any, schema: Any) -> bool:
        return self._check(value, schema) is None

    def _check(self, value: Any, schema: Any) -> Violation | None:
        self._tick()
        if schema is True:
            return None
        if schema is False:
            return Violation(f"False schema does not allow {value!r}")
        self._scopes.append(self._bases[id(schema)])
        try:
            if self._old and "$ref" in schema:
                return self._ref(schema["$ref"], value, schema)
            rules = self._rules
            for keyword, wanted in schema.items():
                if (assertion := _ASSERTIONS.get(keyword)) is not None:
                    if (message := assertion(wanted, value, schema)) is not None:
                        return Violation(message)
                    continue
                rule = rules.get(keyword)
                if rule is not None and (found := rule(self, wanted, value, schema)) is not None:
                    return found
            return None
        finally:
            self._scopes.pop()

    # --- references -----------------------------------------------------------------------------

    def _index(self, schema: Any) -> None:
        """Index every part that a reference can name."""
        left: list[tuple[Any, str]] = [(schema, "")]
        self._resources[""] = schema
        while left:
            part, base = left.pop()
            if isinstance(part, list):
                left.extend((item, base) for item in cast("list[Any]", part))
            if not isinstance(part, Mapping):
                continue
            fields = cast("Mapping[str, Any]", part)
            given = fields.get("$id", fields.get("id") if self._old else None)
            if isinstance(given, str) and not (self._old and "$ref" in fields):
                named, fragment = urldefrag(given)
                if named:
                    base = urljoin(base, named)
                    self._resources.setdefault(base, fields)
                elif fragment:
                    self._anchors.setdefault((base, fragment), fields)
            self._bases[id(fields)] = base
            for keyword, known in (("$anchor", self._anchors), ("$dynamicAnchor", self._dynamic)):
                if isinstance(anchor := fields.get(keyword), str):
                    known.setdefault((base, anchor), fields)
            left.extend((value, base) for value in fields.values())

    def _found(self, reference: Any, schema: Mapping[str, Any]) -> tuple[Any, str, str]:
        """Return the schema that a reference names, with its base and its fragment."""
        address, fragment = urldefrag(urljoin(self._bases[id(schema)], reference))
        if address not in self._resources:
            raise Unresolvable(str(reference))
        fragment = unquote(fragment)
        named = (address, fragment)
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get(named, self._dynamic.get(named))
            if found is None:
                raise Unresolvable(str(reference))
            return found, address, fragment
        found = self._resources[address]
        for step in fragment.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(key) if isinstance(found, list) else key]
            except (LookupError, TypeError, ValueError):
                raise Unresolvable(str(reference)) from None
        return found, address, fragment

    def _ref(self, reference: Any, value: Any, schema: Any) -> Violation | None:
        return self._check(value, self._found(reference, schema)[0])

    def _dynamic_target(self, reference: Any, schema: Any) -> Any:
        found, address, fragment = self._found(reference, schema)
        if (address, fragment) in self._dynamic:
            for scope in self._scopes:
                if (scope, fragment) in self._dynamic:
                    return self._dynamic[scope, fragment]
        return found

    def _dynamic_ref(self, reference: Any, value: Any, schema: Any) -> Violation | None:
        return self._check(value, self._dynamic_target(reference, schema))

    def _recursive_target(self, reference: Any, schema: Any) -> Any:
        found = self._found(reference, schema)[0]
        if isinstance(found, dict) and cast("dict[str, Any]", found).get("$recursiveAnchor") is True:
            for scope in self._scopes:
                root = self._resources.get(scope)
                if isinstance(root, Mapping) and cast("Any", root).get("$recursiveAnchor") is True:
                    return cast("Any", root)
        return cast("Any", found)

    def _recursive_ref(self, reference: Any, value: Any, schema: Any) -> Violation | None:
        return self._check(value, self._recursive_target(reference, schema))

    # --- any value ------------------------------------------------------------------------------

    def _all_of(self, parts: Any, value: Any, schema: Any) -> Violation | None:
        return next((found for part in parts if (found := self._check(value, part)) is not None), None)

    def _any_of(self, parts: Any, value: Any, schema: Any) -> Violation | None:
        if any(self._fits(value, part) for part in parts):
            return None
        return Violation(f"{value!r} is not valid under any of the given schemas")

    def _one_of(self, parts: Any, value: Any, schema: Any) -> Violation | None:
        fitting = 0
        for part in parts:
            fitting += self._fits(value, part)
            if fitting > 1:
                return Violation(f"{value!r} is valid under more than one of the given schemas")
        if fitting:
            return None
        return Violation(f"{value!r} is not valid under any of the given schemas")

    def _not(self, part: Any, value: Any, schema: Any) -> Violation | None:
        if not self._fits(value, part):
            return None
        return Violation(f"{value!r} should not be valid under {part!r}")

    def _if(self, part: Any, value: Any, schema: Any) -> Violation | None:
        return self._check(value, schema.get("then" if self._fits(value, part) else "else", True))

    # --- numbers and texts ----------------------------------------------------------------------

    def _pattern(self, pattern: Any, value: Any, schema: Any) -> Violation | None:
        if isinstance(value, str) and self._matches(pattern, value) is False:
            return Violation(f"{value[:80]!r} does not match {pattern[:80]!r}")
        return None

    # --- arrays ---------------------------------------------------------------------------------

    def _each(self, part: Any, items: list[Any], first: int) -> Violation | None:
        for index in range(first, len(items)):
            if (found := self._check(items[index], part)) is not None:
                return found.within(index)
        return None

    def _tuple(self, parts: Any, value: Any, schema: Any) -> Violation | None:
        for index, (item, part) in enumerate(zip(_items(value), parts, strict=False)):
            if (found := self._check(item, part)) is not None:
                return found.within(index)
        return None

    def _array(self, part: Any, value: Any, schema: Any) -> Violation | None:
        if isinstance(part, list):
            return self._tuple(part, value, schema)
        return self._each(part, _items(value), len(schema.get("prefixItems", ())))

    def _additional_items(self, part: Any, value: Any, schema: Any) -> Violation | None:
        named = schema.get("items")
        return (
            self._each(part, _items(value), len(cast("list[Any]", named)))
            if isinstance(named, list)
            else None
        )

    def _contains(self, part: Any, value: Any, schema: Any) -> Violation | None:
        if not isinstance(value, list):
            return None
        least, most = schema.get("minContains", 1), schema.get("maxContains")
        fitting = sum(self._fits(item, part) for item in _items(value))
        if fitting < least:
            return Violation(f"{value!r} does not contain items matching the given schema")
        if most is not None and fitting > most:
            return Violation(f"Too many items match the given schema (expected at most {most})")
        return None

    # --- objects --------------------------------------------------------------------------------

    def _properties(self, parts: Any, value: Any, schema: Any) -> Violation | None:
        if isinstance(value, dict):
            for name, part in parts.items():
                if name in value and (found := self._check(value[name], part)) is not None:
                    return found.within(name)
        return None

    def _pattern_properties(self, parts: Any, value: Any, schema: Any) -> Violation | None:
        for pattern, part in parts.items():
            for name, item in _members(value):
                if self._matches(pattern, name) and (found := self._check(item, part)) is not None:
                    return found.within(name)
        return None

    def _additional_properties(self, part: Any, value: Any, schema: Any) -> Violation | None:
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, item in _members(value):
            if name in named or not all(self._matches(pattern, name) is False for pattern in patterns):
                continue
            if part is False:
                return Violation(f"{name[:80]!r} is not among its properties")
            if (found := self._check(item, part)) is not None:
                return found.within(name)
        return None

    def _property_names(self, part: Any, value: Any, schema: Any) -> Violation | None:
        checks = (self._check(name, part) for name, _ in _members(value))
        return next((found for found in checks if found is not None), None)

    def _dependencies(self, parts: Any, value: Any, schema: Any) -> Violation | None:
        """`dependencies`, `dependentRequired` and `dependentSchemas`."""
        if not isinstance(value, dict):
            return None
        for name, part in parts.items():
            if name not in value:
                continue
            if isinstance(part, list):
                missing = next((other for other in cast("list[str]", part) if other not in value), None)
                if missing is not None:
                    return Violation(f"{missing!r} is a dependency of {name!r}")
            elif (found := self._check(cast("Any", value), part)) is not None:
                return found
        return None

    # --- unevaluated properties and items -------------------------------------------------------

    def _unevaluated_properties(self, part: Any, value: Any, schema: Any) -> Violation | None:
        if not isinstance(value, dict):
            return None
        members = cast("dict[str, Any]", value)
        for name in members.keys() - self._seen_names(members, schema, own=True):
            if (found := self._check(members[name], part)) is not None:
                if part is False:
                    return Violation(f"Unevaluated properties are not allowed ({name[:80]!r} was unexpected)")
                return found.within(name)
        return None

    def _unevaluated_items(self, part: Any, value: Any, schema: Any) -> Violation | None:
        items = _items(value)
        for index in sorted(set(range(len(items))) - self._seen_items(items, schema, own=True)):
            if (found := self._check(items[index], part)) is not None:
                if part is False:
                    return Violation(f"Unevaluated items are not allowed ({items[index]!r} was unexpected)")
                return found.within(index)
        return None

    def _seen_names(self, value: dict[str, Any], schema: Any, own: bool = False) -> set[str]:
        """The properties that a schema evaluates; with `own`, apart from its `unevaluatedProperties`."""
        self._tick()
        if not isinstance(schema, Mapping):
            return set()
        fields = cast("Mapping[str, Any]", schema)
        if "additionalProperties" in fields or ("unevaluatedProperties" in fields and not own):
            return set(value)
        named, patterns = fields.get("properties", {}), fields.get("patternProperties", {})
        seen = {
            name
            for name in value
            if name in named or any(self._matches(pattern, name) is not False for pattern in patterns)
        }
        for part in self._applied(value, fields):
            seen |= self._seen_names(value, part)
        return seen

    def _seen_items(self, value: list[Any], schema: Any, own: bool = False) -> set[int]:
        """The same for the items of an array."""
        self._tick()
        if not isinstance(schema, Mapping):
            return set()
        fields = cast("Mapping[str, Any]", schema)
        rest, tuples = fields.get("items"), fields.get("prefixItems", ())
        whole = rest is not None and not isinstance(rest, list)
        if isinstance(rest, list):
            tuples, whole = cast("list[Any]", rest), "additionalItems" in fields
        if whole or ("unevaluatedItems" in fields and not own):
            return set(range(len(value)))
        seen = set(range(min(len(tuples), len(value))))
        if "contains" in fields and not isinstance(rest, list):
            seen |= {index for index, item in enumerate(value) if self._fits(item, fields["contains"])}
        for part in self._applied(value, fields):
            seen |= self._seen_items(value, part)
        return seen

    def _applied(self, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        """The subschemas that apply to the same value and match it."""
        for keyword in ("allOf", "anyOf", "oneOf"):
            yield from (part for part in schema.get(keyword, ()) if self._fits(value, part))
        if "if" in schema:
            fits = self._fits(value, schema["if"])
            if fits:
                yield schema["if"]
            yield schema.get("then" if fits else "else", True)
        for name, part in schema.get("dependentSchemas", {}).items():
            if isinstance(value, dict) and name in value:
                yield part
        if "$ref" in schema:
            yield self._found(schema["$ref"], schema)[0]
        if "$dynamicRef" in schema:
            yield self._dynamic_target(schema["$dynamicRef"], schema)
        if "$recursiveRef" in schema:
            yield self._recursive_target(schema["$recursiveRef"], schema)

    _rules: ClassVar[Mapping[str, Callable[..., Violation | None]]] = {
        "$dynamicRef": _dynamic_ref,
        "$recursiveRef": _recursive_ref,
        "$ref": _ref,
        "additionalItems": _additional_items,
        "additionalProperties": _additional_properties,
        "allOf": _all_of,
        "anyOf": _any_of,
        "contains": _contains,  # with `minContains` and `maxContains`
        "dependencies": _dependencies,
        "dependentRequired": _dependencies,
        "dependentSchemas": _dependencies,
        "if": _if,  # with `then` and `else`
        "items": _array,
        "not": _not,
        "oneOf": _one_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "prefixItems": _tuple,
        "properties": _properties,
        "propertyNames": _property_names,
        "unevaluatedItems": _unevaluated_items,
        "unevaluatedProperties": _unevaluated_properties,
    }


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _members(value: Any) -> list[tuple[str, Any]]:
    return list(cast("dict[str, Any]", value).items()) if isinstance(value, dict) else []
