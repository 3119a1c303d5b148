"""Rules over the arguments of calls, in the Common Expression Language (CEL).

The package `common-expression-language` evaluates them. It is imported when there are rules. Expressions and
inputs are limited before it sees them, so that every evaluation ends soon: no macro inside another one,
constant regular expressions, and limits of depth and size of the arguments that an expression uses.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, cast

from mooring.core.schema.patterns import linear_match
from mooring.core.text import did_you_mean
from mooring.core.types import EMPTY
from mooring.core.value import Value
from mooring.errors import ConfigError

__all__ = [
    "VARIABLES",
    "CompiledRule",
    "Decision",
    "Facts",
    "Residual",
    "RuleError",
    "Verdict",
    "compile_rules",
]

Verdict = Literal["allow", "ask", "deny"]
STRICTNESS: Mapping[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}

LONGEST_RULE = 2_000
"""Characters of an expression."""
VARIABLES = ("tool", "server", "arguments", "principal", "profile", "annotations", "now")
HINTS = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""Annotations that are null in rules when the server does not give them."""
FUNCTIONS = (
    *("size", "contains", "startsWith", "endsWith", "matches", "has", "string", "int", "uint", "double"),
    *("bytes", "type", "dyn", "timestamp", "duration", "getFullYear", "getMonth", "getDate", "getDayOfMonth"),
    *("getDayOfWeek", "getDayOfYear", "getHours", "getMinutes", "getSeconds", "getMilliseconds"),
)
_MOST_JOINED = 32
"""Rules that are evaluated together: the evaluator is recursive."""
_MACROS = frozenset(("all", "exists", "exists_one", "map", "filter"))
_DEEPEST = 64
_MOST_VALUES, _MOST_TEXT = 20_000, 4 * 2**20
"""Values and characters of the arguments that a rule may look at."""
_MOST_VALUES_MACRO, _MOST_TEXT_MACRO = 1_000, 2**16
"""The same for a rule with a macro, which looks at them many times."""
_TOKEN = (
    r"(?s)(?P<string>[rRbB]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'))"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<space>\s+|//[^\n]*)|(?P<other>.)"
)

_TEXT = r"\"[^\"\\]+\"|'[^'\\]+'"
_SIMPLE = (
    rf"arguments\.(\w+)(?:\.(startsWith|endsWith|contains|matches)\(({_TEXT})\)"
    rf"|\s*([=!<>]=|[<>])\s*({_TEXT}|-?\d{{1,15}}))"
)
"""A condition about one argument that is compared with a constant."""
_METHODS: Mapping[str, Callable[[Any, Any], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": operator.contains,
    "matches": lambda text, pattern: linear_match(pattern, text) is not False,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class RuleError(ValueError):
    """A rule cannot be used or evaluated. The message holds no values of arguments."""


class Decision(Value):
    """Whether a call may be made."""

    verdict: Verdict
    reason: str = ""
    """The rule, in words of the configuration, without text of the server."""


class RuleSettings(Protocol):
    @property
    def when(self) -> str: ...
    @property
    def then(self) -> Verdict: ...
    @property
    def reason(self) -> str | None: ...


class Facts:
    """The values that rules can refer to. None: not known yet; a rule that needs it is undecided."""

    __slots__ = ("annotations", "arguments", "now", "principal", "profile", "server", "tool")

    def __init__(
        self,
        *,
        tool: str,
        server: str,
        annotations: Mapping[str, Any] | None = EMPTY,
        arguments: Mapping[str, Any] | None = None,
        principal: str | None = None,
        profile: str | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        """
        Args:
            tool: The server's own name of the tool.
            server: The server's name in the configuration.
            annotations: The hints of the tool.
            arguments: As the server gets them.
            principal: Authenticated user; empty without one.
            profile: Profile of the gateway; empty without one.
            now: Returns the time; called only if a rule needs it.
        """
        self.tool, self.server, self.annotations, self.arguments = tool, server, annotations, arguments
        self.principal, self.profile, self.now = principal, profile, now

    def about(self, annotations: Mapping[str, Any]) -> Facts:
        """Return the same facts with these annotations."""
        if annotations is self.annotations:
            return self
        return Facts(
            tool=self.tool,
            server=self.server,
            annotations=annotations,
            arguments=self.arguments,
            principal=self.principal,
            profile=self.profile,
            now=self.now,
        )

    def variables(self, names: frozenset[str], arguments: frozenset[str] | None) -> dict[str, Any]:
        """Return the variables for expressions; `arguments`: the only ones that they use."""
        made: dict[str, Any] = {}
        for name in names:
            value: Any = getattr(self, name)
            if value is None:
                continue
            if name == "annotations":
                value = {**dict.fromkeys(HINTS), **value}
            elif name == "arguments":
                given = cast("Mapping[str, Any]", value)
                value = (
                    dict(given)
                    if arguments is None
                    else {key: given[key] for key in arguments if key in given}
                )
            elif name == "now":
                value = value()
            made[name] = value
        return made


class CompiledRule:
    """One rule, ready to be evaluated."""

    __slots__ = (
        "_program", "arguments", "label", "macro", "needs", "reason", "source", "variables", "verdict",
    )  # fmt: skip

    def __init__(self, rule: RuleSettings, label: str) -> None:
        self.label, self.source = label, rule.when
        self.verdict: Verdict = rule.then
        self.macro, self.arguments = _checked(rule.when)
        self._program = _compiled(rule.when)
        found = self._program.references()
        self.variables = frozenset(VARIABLES).intersection(found["variables"])
        _check_names(rule.when, found["variables"], found["functions"])
        self.reason = f"{label}: {rule.reason}" if rule.reason else label
        self.needs = _condition(rule.when)
        """A condition that calls must meet for the rule to apply, if there is one that needs no evaluator."""

    @property
    def decision(self) -> Decision:
        return Decision(verdict=self.verdict, reason=self.reason)

    def met(self, context: Any) -> bool:
        """Return whether the rule applies.

        Raises:
            RuleError: It cannot be evaluated.
        """
        try:
            result = self._program.execute(context)
        except Exception as problem:
            raise RuleError(_problem(problem, self.source)) from None
        except BaseException as panic:
            if type(panic).__name__ != "PanicException":  # a bug in the evaluator
                raise
            raise RuleError("the evaluator failed") from None
        if result is True or result is False:
            return result
        raise RuleError("its expression is neither true nor false")


class Residual:
    """Rules of one policy that are undecided for a tool before its arguments are known."""

    __slots__ = ("_any", "_arguments", "_limits", "_names", "final", "rules")

    def __init__(self, rules: Sequence[CompiledRule], final: Decision | None) -> None:
        self.rules, self.final = tuple(rules), final
        used = [rule for rule in rules if "arguments" in rule.variables]
        self._names = frozenset[str]().union(*(rule.variables for rule in rules))
        self._arguments: frozenset[str] | None = frozenset()
        for rule in used:
            known = self._arguments
            self._arguments = None if known is None or rule.arguments is None else known | rule.arguments
        macro = any(rule.macro for rule in rules)
        self._limits = (_MOST_VALUES_MACRO, _MOST_TEXT_MACRO) if macro else (_MOST_VALUES, _MOST_TEXT)
        self._any: Any = None
        """One program for all rules; it is false if none of them applies. Made for the first call."""

    @property
    def arguments(self) -> frozenset[str] | None:
        """The arguments that the undecided rules use; None: all."""
        return self._arguments

    @property
    def decided(self) -> bool:
        """Whether the arguments and the caller make no difference."""
        return not self.rules

    def with_facts(self, facts: Facts) -> Residual:
        """Return the rules that are still undecided with more facts."""
        if not self.rules:
            return self
        try:
            context = self._context(facts)
        except RuleError:
            return self
        open_rules = list[CompiledRule]()
        for rule in self.rules:
            try:
                if rule.met(context):
                    return Residual(open_rules, rule.decision)
            except RuleError:
                open_rules.append(rule)
        return Residual(open_rules, self.final)

    def decide(self, facts: Facts) -> Decision | None:
        """Return the decision of the first rule that applies; None if none does.

        A rule that cannot be evaluated denies the call.
        """
        rules = self.possible(facts.arguments)
        if not rules:
            return self.final
        try:
            context = self._context(facts)
        except RuleError as problem:
            return _failed(self.rules[0], problem)
        if rules is self.rules and self._none(context):
            return self.final
        for rule in rules:
            try:
                if rule.met(context):
                    return rule.decision
            except RuleError as problem:
                return _failed(rule, problem)
        return self.final

    def possible(self, arguments: Mapping[str, Any] | None) -> Sequence[CompiledRule]:
        """Return the rules that may apply, without those whose condition these arguments do not meet."""
        if arguments is None or self._arguments is None:
            return self.rules
        for name in self._arguments:
            value: Any = arguments.get(name)
            kind = value.__class__
            if kind is str:
                if len(value) > 1_000 or not value.isascii():
                    return self.rules
            elif kind is int:
                if not -(2**63) <= value < 2**63:
                    return self.rules
            elif not (kind is bool or value is None):
                return self.rules
        left = [rule for rule in self.rules if rule.needs is None or _may_meet(rule.needs, arguments)]
        return left if len(left) < len(self.rules) else self.rules

    def _none(self, context: Any) -> bool:
        """Whether no rule applies, the usual case, by one evaluation. False if that is not certain: a rule
        applies, or one cannot be evaluated."""
        if not 1 < len(self.rules) <= _MOST_JOINED:
            return False
        try:
            if self._any is None:
                self._any = _compiled(" || ".join(f"(\n{rule.source}\n)" for rule in self.rules))
            return self._any.execute(context) is False
        except BaseException as problem:
            if isinstance(problem, Exception) or type(problem).__name__ == "PanicException":
                return False
            raise

    def _context(self, facts: Facts) -> Any:
        variables = facts.variables(self._names, self._arguments)
        if "arguments" in variables:
            check_size(variables["arguments"], *self._limits)
        if "annotations" in variables:
            check_size(variables["annotations"], *self._limits)
        return _context(variables)


def compile_rules(rules: Sequence[RuleSettings], whose: str) -> Residual:
    """Return the rules of one policy, none decided.

    Args:
        rules: The rules in order.
        whose: The policy, for messages: `the host's policy`.

    Raises:
        ConfigError: A rule is wrong, or the package that evaluates them is missing.
    """
    made = list[CompiledRule]()
    for number, rule in enumerate(rules, 1):
        try:
            made.append(CompiledRule(rule, f"rule {number} of {whose}"))
        except RuleError as problem:
            place = f"policy.rules[{number}].when"
            raise ConfigError(f"{problem} (in {whose})", place=place) from None
    return Residual(made, None)


def check_size(value: Any, most: int = _MOST_VALUES, text: int = _MOST_TEXT) -> None:
    """Raise RuleError if a value is too deep or too large for the evaluator."""
    if isinstance(value, dict) and _small(cast("dict[str, Any]", value)):
        return
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, str):
                text -= len(item)
            elif isinstance(item, Mapping):
                fields = cast("Mapping[str, Any]", item)
                text -= sum(map(len, fields))
                inner.extend(fields.values())
            elif isinstance(item, list | tuple):
                inner.extend(cast("list[Any]", item))
        most -= len(level)
        if most < 0 or text < 0:
            raise RuleError("the arguments that it looks at are too large")
        if not inner:
            return
        level = inner
    raise RuleError("the arguments that it looks at are nested too deeply")


def _small(fields: dict[str, Any]) -> bool:
    """Whether a mapping is flat and short, the usual case."""
    if len(fields) > 32:
        return False
    for value in fields.values():
        kind = value.__class__
        if kind is str:
            if len(value) > 1_000:
                return False
        elif not (kind is int or kind is bool or kind is float or value is None):
            return False
    return True


def strictest(decisions: Sequence[Decision]) -> Decision:
    """Return the strictest decision; of equals the first."""
    return max(decisions, key=lambda one: STRICTNESS[one.verdict])


# --- expressions


def _compiled(source: str) -> Any:
    try:
        import cel  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise RuleError(
            "needs a package that is not installed; install it with `pip install 'mooring[policy]'`"
        ) from None
    try:
        return cel.compile(source)
    except Exception as problem:
        said = [part for part in str(problem).splitlines() if "ERROR" in part]
        where = re.sub(r".*ERROR: <input>:1?:?", "at ", said[0]) if said else type(problem).__name__
        raise RuleError(f"is not a valid expression: {where[:200]}") from None
    except BaseException as panic:
        if type(panic).__name__ != "PanicException":
            raise
        raise RuleError("is not a valid expression") from None


def _context(variables: dict[str, Any]) -> Any:
    from cel import Context  # lazy: only with rules

    try:
        return Context(variables=variables)
    except Exception:  # such as text with half a surrogate pair
        raise RuleError("the arguments that it looks at cannot be converted") from None


def _checked(source: str) -> tuple[bool, frozenset[str] | None]:
    """Return whether an expression has a macro, and the arguments that it uses (None: all of them).

    Raises:
        RuleError: It might take long.
    """
    tokens = [
        (str(found.lastgroup), found[0])
        for found in re.finditer(_TOKEN, source)
        if found.lastgroup != "space"
    ]
    tokens += [("end", "")] * 4
    calls, macro, used = list[bool](), False, set[str]()
    whole = False
    for at, (kind, text) in enumerate(tokens):
        before = tokens[at - 1][1] if at else ""
        following = [text for _, text in tokens[at + 1 : at + 4]]
        if text in "([{" and kind == "other":
            calls.append(before in _MACROS and at > 1 and tokens[at - 2][1] == ".")
            if calls[-1]:
                if sum(calls) > 1:
                    raise RuleError("has a macro (such as all or filter) inside another one; split the rule")
                macro = True
        elif text in ")]}" and kind == "other" and calls:
            calls.pop()
        elif kind == "name" and text == "map" and before == "." and following[0] == "(":
            # Each step copies the whole list again, so that a few hundred items take a minute.
            raise RuleError("uses 'map', which is not available; use 'all', 'exists' or 'filter'")
        elif kind == "name" and text == "matches" and following[0] == "(":
            if before != "." or tokens[at + 2][0] != "string" or following[2] != ")":
                raise RuleError('needs a constant pattern: write text.matches("…")')
        elif kind == "name" and text == "arguments" and before != ".":
            if following[0] == "." and tokens[at + 2][0] == "name":
                used.add(following[1])
            elif following[0] == "[" and following[2] == "]" and re.fullmatch(_TEXT, following[1]):
                used.add(following[1][1:-1])
            elif before == "in" and at > 1 and re.fullmatch(_TEXT, tokens[at - 2][1]):
                used.add(tokens[at - 2][1][1:-1])
            else:
                whole = True
    return macro, None if whole else frozenset(used)


_Condition = tuple[str, type, Callable[[Any, Any], bool], Any]
"""Argument, class of its value, and what holds for that value and a constant."""


def _condition(source: str) -> _Condition | None:
    """Return the first simple condition of an expression that joins conditions by `&&`."""
    depth, start, before = 0, 0, ""
    parts = list[str]()
    for found in re.finditer(_TOKEN, source):
        text = found[0] if found.lastgroup == "other" else ""
        if text and text in "([{":
            depth += 1
        elif text and text in ")]}":
            depth -= 1
        elif not depth and text and text in "|?":
            return None
        elif not depth and text == before == "&":
            parts.append(source[start : found.start() - 1])
            start = found.end()
        before = text
    for part in (*parts, source[start:]):
        if (found := re.fullmatch(_SIMPLE, part.strip())) is not None:
            name, method, text, sign, constant = found.groups()
            if method is not None:
                if method != "matches" or _is_pattern(text):
                    return name, str, _METHODS[method], text[1:-1]
            elif constant[0] not in "\"'":
                return name, int, _METHODS[sign], int(constant)
            elif sign in ("==", "!="):
                return name, str, _METHODS[sign], constant[1:-1]
    return None


def _is_pattern(text: str) -> bool:
    """Whether the evaluator accepts a pattern: a rule with a wrong one denies every call."""
    try:
        return _compiled(f"''.matches({text})").execute(_context({})) is not None
    except Exception:
        return False


def _may_meet(condition: _Condition, arguments: Mapping[str, Any]) -> bool:
    """Whether arguments may meet a condition: False is certain."""
    name, kind, holds, constant = condition
    value = arguments.get(name)
    return value.__class__ is not kind or holds(value, constant)


def _check_names(source: str, names: Sequence[str], functions: Sequence[str]) -> None:
    bound = set(re.findall(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,", source))
    for name in names:
        if name in VARIABLES or name in bound or name.startswith("@"):
            continue
        near = did_you_mean(name, VARIABLES)
        hint = f"did you mean {near!r}?" if near else f"known are {', '.join(VARIABLES)}"
        raise RuleError(f"names {name[:40]!r}, which is not a variable; {hint}")
    for name in functions:
        if name in FUNCTIONS or not name.isidentifier():  # others are operators
            continue
        near = did_you_mean(name, FUNCTIONS)
        hint = f"did you mean {near!r}?" if near else "see the list of functions in the documentation"
        raise RuleError(f"calls {name[:40]!r}, which is not a function; {hint}")


def _failed(rule: CompiledRule, problem: RuleError) -> Decision:
    return Decision(verdict="deny", reason=f"{rule.label} could not be evaluated: {problem}")


def _problem(problem: Exception, source: str) -> str:
    """Return why an evaluation failed, without values of the arguments."""
    if isinstance(problem, KeyError):
        key = str(problem.args[0]) if problem.args else ""
        return f"there is no {key!r}" if key and key in source else "a key is missing"
    if isinstance(problem, TypeError):
        return "a value has another type than the expression needs"
    if isinstance(problem, RuntimeError) and "Undefined" in str(problem):
        return "a function does not exist, or not for this type of value"
    return f"the evaluator reported {type(problem).__name__}"
