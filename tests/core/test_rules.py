"""Rules over the arguments of calls: their decisions, with hostile expressions and inputs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring import ConfigError
from mooring.config.shaping import Rule
from mooring.core.rules import (
    VARIABLES,
    CompiledRule,
    Facts,
    RuleError,
    check_size,
    compile_rules,
)

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def rule(when: str, then: str = "deny", reason: str | None = None) -> Rule:
    return Rule(when=when, then=then, reason=reason)


def facts(**more: Any) -> Facts:
    known = {"tool": "write", "server": "files", "principal": "ana", "profile": "", "now": lambda: NOON}
    return Facts(**{**known, "arguments": {}, **more})


def verdict(when: str, **more: Any) -> str | None:
    found = compile_rules([rule(when)], "the host's policy").decide(facts(**more))
    return None if found is None else found.verdict


@pytest.mark.parametrize(
    ("when", "more"),
    [
        ("true", {}),
        ('tool == "write" && server == "files"', {}),
        ('arguments.path.startsWith("/etc/")', {"arguments": {"path": "/etc/passwd"}}),
        ('!(arguments.path.matches("^/srv/"))', {"arguments": {"path": "/home"}}),
        ("has(arguments.force) && arguments.force", {"arguments": {"force": True}}),
        ('"force" in arguments', {"arguments": {"force": False}}),
        ("arguments.amount > 100", {"arguments": {"amount": 100.5}}),
        (
            'arguments.to.exists(one, one.endsWith("@evil.example"))',
            {"arguments": {"to": ["a@evil.example"]}},
        ),
        ('!(principal in ["bob", "eve"])', {}),
        ('profile == "team"', {"profile": "team"}),
        ("annotations.destructiveHint == true", {"annotations": {"destructiveHint": True}}),
        ("now.getHours() < 8 || now.getHours() >= 12", {}),
        ("now.getDayOfWeek() == 1", {}),
        (
            "arguments.a.all(x, x > 1) && arguments.b.all(x, x > 1)",  # two macros, none inside the other
            {"arguments": {"a": [2], "b": [3]}},
        ),
        ('arguments["path"] == "/etc" && "path" in arguments', {"arguments": {"path": "/etc"}}),
    ],
)
def test_a_rule_whose_expression_is_true_applies(when: str, more: dict[str, Any]) -> None:
    assert verdict(when, **more) == "deny"


@pytest.mark.parametrize(
    "when", ["false", 'tool == "read"', "has(arguments.path)", "annotations.destructiveHint == true"]
)
def test_a_rule_whose_expression_is_false_does_not_apply(when: str) -> None:
    assert verdict(when) is None


def test_the_first_rule_that_applies_decides_and_is_named() -> None:
    rules = [rule("false"), rule('tool == "write"', "ask", "writing is reviewed"), rule("true")]
    found = compile_rules(rules, "the host's policy").decide(facts())
    assert found is not None
    assert (found.verdict, found.reason) == ("ask", "rule 2 of the host's policy: writing is reviewed")


@pytest.mark.parametrize(
    ("when", "arguments"),
    [
        ('arguments.path.startsWith("/etc/")', {}),
        ('arguments.path.startsWith("/etc/")', {"path": 7}),
        ("arguments.amount > 100", {"amount": "planted-secret-value"}),
        ("arguments.amount / arguments.amount > 1", {"amount": 0}),
        ("1 + 1", {}),
        ('arguments[arguments.key] == "x"', {"key": "planted-secret-value"}),
    ],
)
def test_a_rule_that_cannot_be_evaluated_denies_and_repeats_no_value(when: str, arguments: Any) -> None:
    rules = [rule(when, "allow"), rule("true", "allow")]
    found = compile_rules(rules, "the host's policy").decide(facts(arguments=arguments))
    assert found is not None
    assert found.verdict == "deny"
    assert found.reason.startswith("rule 1 of the host's policy could not be evaluated: ")
    assert "planted" not in found.reason


@pytest.mark.parametrize(
    ("when", "problem"),
    [
        ("tol == 'x'", "did you mean 'tool'?"),
        ("tool ==", "is not a valid expression"),
        ("startWith(tool)", "did you mean 'startsWith'?"),
        ("arguments.a.all(x, x.b.all(y, y))", "inside another one"),
        ("tool.matches(arguments.pattern)", "constant pattern"),
        ("size(arguments.a.map(x, x)) > 1", "'map', which is not available"),
        ("(" * 300 + "true" + ")" * 300, "is not a valid expression"),
    ],
)
def test_a_wrong_expression_is_an_error_that_names_its_place(when: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_rules([rule("true"), rule(when)], "the host's policy")
    assert "policy.rules[2].when" in str(caught.value)
    assert problem in str(caught.value)


def test_without_the_package_rules_are_an_error_that_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['cel'] = None\n"
        "from mooring import Host, HostConfig, ConfigError\n"
        "Host()\n"
        "try: Host(HostConfig(policy={'rules': [{'when': 'true', 'then': 'deny'}]}))\n"
        "except ConfigError as problem: print(problem)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install 'mooring[policy]'" in done.stdout


def test_the_package_is_not_imported_without_rules() -> None:
    code = "import sys; from mooring import Host; Host(); print('cel' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"


def test_rules_that_need_no_arguments_are_decided_when_tools_are_listed() -> None:
    rules = [rule('tool == "read" && arguments.path == "x"', "allow"), rule('server == "files"')]
    left = compile_rules(rules, "x").with_facts(Facts(tool="write", server="files"))
    assert left.decided
    assert left.final is not None
    assert left.final.verdict == "deny"
    open_ones = compile_rules(rules, "x").with_facts(Facts(tool="read", server="files"))
    assert [one.verdict for one in open_ones.rules] == ["allow"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            EXPRESSIONS := [
                'tool == "write"',
                'server == "x"',
                "arguments.n > 3",
                'principal == "ana" && arguments.n > 3',
                "has(arguments.n)",
                "annotations.readOnlyHint == true || arguments.n == 1",
                "now.getHours() > 3",
            ]
        ),
        max_size=4,
    ),
    st.lists(st.sampled_from(["allow", "ask", "deny"]), min_size=4, max_size=4),
    st.dictionaries(st.sampled_from(["n", "m"]), st.sampled_from([0, 1, 5, "x", None])),
)
def test_deciding_in_steps_is_the_same_as_deciding_at_once(
    expressions: list[str], verdicts: list[str], arguments: dict[str, Any]
) -> None:
    rules = [rule(when, then) for when, then in zip(expressions, verdicts, strict=False)]
    whole, all_facts = compile_rules(rules, "x"), facts(arguments=arguments)
    early = whole.with_facts(Facts(tool="write", server="files"))
    later = early.with_facts(facts(arguments=None))
    assert early.decide(all_facts) == later.decide(all_facts) == whole.decide(all_facts)


_PATTERNS = (
    "x",
    "^x",
    "y$",
    "^[xy]+$",
    "(x|1)",
    "^x{2}$",
    "(?i)X",
    "^.$",
    "^$",
    "[^x]",
    "x-?y",
    "x|^1",
    "x*",
)
_CONDITIONS = st.builds(
    "arguments.{}{}".format,
    st.sampled_from(["a", "b"]),
    st.sampled_from(
        [
            *(
                '.startsWith("x")',
                '.endsWith("y")',
                ".contains('xy')",
                ' == "xy"',
                " != 'x'",
                '=="1"',
                " == 1",
            ),
            *(
                " != 1",
                " < 1",
                "<= -1",
                " > 2",
                ">= 1",
                ' < "y"',
                " == true",
                ".b == 1",
                " in [1, 2]",
                " == 1.0",
            ),
            *(f".matches('{pattern}')" for pattern in _PATTERNS),
            *(' == "é"', ".size() > 1", ' == "\\u0078"', " == null", '.startsWith("x") == false'),
        ]
    ),
)
_OTHER = st.sampled_from(
    ["true", "false", 'principal == "ana"', "annotations.missing", "1 / 0 == 1", "has(arguments.a)"]
)
_EXPRESSIONS = st.lists(
    st.tuples(_CONDITIONS | _OTHER, st.sampled_from([" && ", "&&", " || ", " ? true : "])),
    min_size=1,
    max_size=4,
).map(lambda parts: "".join(f"{text}{sign}" for text, sign in parts[:-1]) + parts[-1][0])
_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from(
        ["", "x", "y", "xy", "x-y", "1", "é", "\ud800", "x" * 2_000, 2**63, -(2**63), 1.0, ["x"], {"b": 1}]
    )
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(_EXPRESSIONS, min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), _VALUES),
)
def test_rules_that_are_left_out_early_would_not_have_applied(whens: list[str], arguments: Any) -> None:
    written = [rule(f"({when})" if "?" in when else when, reason=str(n)) for n, when in enumerate(whens)]
    left = compile_rules(written, "the host's policy")
    whole = compile_rules(
        [rule(f"dyn({one.when})", reason=one.reason) for one in written], "the host's policy"
    )
    assert all(one.needs is None for one in whole.rules)
    found, known = left.decide(facts(arguments=arguments)), whole.decide(facts(arguments=arguments))
    assert (found and found.reason) == (known and known.reason)


@pytest.mark.parametrize(
    ("when", "arguments"),
    [
        ('tool == "write" && arguments.path.startsWith("/etc/")', {"path": "/srv"}),
        ('principal != "bob" && arguments.mode == "force"', {"mode": "plain"}),
        ('arguments.path.matches("^/etc/.*conf$")', {"path": "/srv/a.conf"}),
        ("arguments.text.matches('[0-9]{4}-[0-9]{4}|secret')", {"text": "1234-567"}),
        ("arguments.amount > 100 && arguments.to != null", {"amount": 7, "to": "ana"}),
    ],
)
def test_a_rule_with_a_simple_condition_that_is_not_met_is_not_evaluated(when: str, arguments: Any) -> None:
    rules = compile_rules([rule(when)], "the host's policy")
    assert not rules.possible(arguments)
    assert rules.possible({**arguments, **dict.fromkeys(arguments, "é" * 2_000)})


def test_a_rule_with_a_wrong_pattern_denies_every_call() -> None:
    for path in ("/etc/x", "/srv"):
        assert verdict('arguments.path.matches("^/etc/(")', arguments={"path": path}) == "deny"


def test_arguments_that_no_rule_uses_may_have_any_size() -> None:
    deep: Any = "x"
    for _ in range(5_000):
        deep = [deep]
    big = {"path": "/etc/x", "content": "x" * 10_000_000, "deep": deep, "half": "\ud800"}
    for when in ('arguments.path == "/etc/x"', 'arguments["path"] == "/etc/x"', '"path" in arguments'):
        assert verdict(when, arguments=big) == "deny"


@pytest.mark.parametrize("when", ['arguments == {"path": "x"}', "size(arguments) > 1", "tool in arguments"])
def test_a_rule_that_uses_the_arguments_as_a_whole_limits_all_of_them(when: str) -> None:
    big = {"path": "/etc/x", "content": "x" * 10_000_000}
    found = compile_rules([rule(when, "allow")], "x").decide(facts(arguments=big))
    assert found is not None
    assert "too large" in found.reason


def test_a_missing_argument_is_named_if_the_rule_names_it() -> None:
    def reason(when: str, arguments: dict[str, Any]) -> str:
        found = compile_rules([rule(when, "allow")], "x").decide(facts(arguments=arguments))
        assert found is not None
        return found.reason

    assert reason('arguments.path == "x"', {}).endswith("there is no 'path'")
    assert reason('arguments[arguments.key] == "x"', {"key": "hidden"}).endswith("a key is missing")


@pytest.mark.parametrize("depth", [63, 1_000, 100_000])
def test_arguments_that_are_nested_deeply_never_reach_the_evaluator(depth: int) -> None:
    deep: Any = "x"
    for _ in range(depth):
        deep = [deep]
    found = compile_rules([rule("arguments.a == 1", "allow")], "x").decide(facts(arguments={"a": deep}))
    assert found is not None
    assert "nested too deeply" in found.reason


def test_annotations_of_a_hostile_server_never_reach_the_evaluator() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = {"a": deep}
    hostile = {"readOnlyHint": deep}
    rules = compile_rules([rule("annotations.readOnlyHint == true", "allow")], "x")
    left = rules.with_facts(Facts(tool="t", server="s", annotations=hostile))
    found = left.decide(facts(annotations=hostile))
    assert found is not None
    assert found.verdict == "deny"


def test_a_rule_with_a_macro_takes_fewer_values() -> None:
    many = {"to": ["a"] * 2_000}
    found = compile_rules([rule("arguments.to.all(x, x == 'a')", "allow")], "x").decide(facts(arguments=many))
    assert found is not None
    assert "too large" in found.reason
    assert verdict("size(arguments.to) > 1", arguments=many) == "deny"


# --- fuzzing: `make fuzz-policy` runs a million

ROUNDS = int(os.environ.get("MOORING_FUZZ_RULES", "20000"))
SLOW = 5.0
"""Seconds that one evaluation may take, on a loaded machine."""
_ATOMS = (
    *VARIABLES,
    "arguments.a",
    "arguments.b.c",
    'arguments["a"]',
    "arguments.list",
    "annotations.readOnlyHint",
    "1",
    "-1",
    "2.5",
    "9223372036854775807",
    "true",
    "false",
    "null",
    '"x"',
    "'ünï'",
    'b"x"',
    "[1, 2]",
    '{"a": 1}',
    "[]",
    "{}",
    'duration("1h")',
    'timestamp("2026-01-01T00:00:00Z")',
    "x",
    "arguments",
    "1u",
)
_OPERATORS = ("&&", "||", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "in")
_METHODS = (
    '.matches("^a(b|c)*$")',
    '.contains("a")',
    ".size()",
    '.startsWith("/")',
    ".getHours()",
    ".a",
    "[0]",
    '["a"]',
    ".all(x, x == 1)",
    ".exists(x, x.a > 1)",
    ".map(x, x + x)",
    ".filter(x, has(x.a))",
    ".map(x, arguments.list)",
    ".matches(tool)",
    ".getFullYear()",
    ".exists_one(x, x)",
    ".endsWith(tool)",
)
_WRAPS = (
    "size({})",
    "string({})",
    "int({})",
    "double({})",
    "!({})",
    "-({})",
    "has({}.a)",
    "[{}]",
    '{{"k": {}}}',
    "({})",
)


def _expression(random: Random, depth: int) -> str:
    kind = random.random()
    if depth == 0 or kind < 0.2:
        return random.choice(_ATOMS)
    if kind < 0.55:
        left, right = _expression(random, depth - 1), _expression(random, depth - 1)
        return f"({left}) {random.choice(_OPERATORS)} ({right})"
    if kind < 0.8:
        return f"({_expression(random, depth - 1)}){random.choice(_METHODS)}"
    if kind < 0.95:
        return random.choice(_WRAPS).format(_expression(random, depth - 1))
    return " ? ".join(_expression(random, depth - 1) for _ in range(2)) + f" : {random.choice(_ATOMS)}"


def _garbage(random: Random) -> str:
    letters = "abcx01(){}[]<>=!&|+-*/%.,:?\"'\\ \n\t$@#~`üé\u202e\ud83d" + "🙂"
    return "".join(random.choice(letters) for _ in range(random.randint(1, 120)))


def _mutated(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    match random.randrange(4):
        case 0:
            return text[:at] + text[at + 1 :]
        case 1:
            return text[:at] + random.choice("()[]{}.,'\"&|!") + text[at:]
        case 2:
            return text[:at] + text[at:] * 2
        case _:
            return text[:at] + _garbage(random) + text[at:]


def _value(random: Random, depth: int) -> Any:
    match random.randrange(9 if depth else 7):
        case 0:
            return random.choice([0, 1, -1, 2**31, 2**63, -(2**63), 10**40])
        case 1:
            return random.choice([0.0, -0.0, 1e308, float("nan"), float("inf"), 2.5])
        case 2:
            return random.choice([True, False, None])
        case 3:
            return random.choice(
                ["", "x", "a" * 500, "abcbc", "\ud800", "\u0000", "ünï", "/etc/passwd", "🙂" * 9]
            )
        case 4 | 5 | 6:
            return random.choice(["a", 1, [], {}])
        case 7:
            return [_value(random, depth - 1) for _ in range(random.randint(0, 4))]
        case _:
            return {random.choice("abck"): _value(random, depth - 1) for _ in range(random.randint(0, 4))}


def _facts(random: Random) -> Facts:
    arguments = {
        random.choice(["a", "b", "list", "path"]): _value(random, 3) for _ in range(random.randint(0, 4))
    }
    if random.random() < 0.01:
        arguments["list"] = [random.choice([1, "x" * 100])] * random.choice([10, 900, 5_000])
    return facts(
        tool=random.choice(["write", "", "x" * 300]),
        annotations={"readOnlyHint": _value(random, 2)},
        arguments=random.choice([arguments, arguments, None]),
    )


@pytest.mark.timeout(3600)
def test_no_expression_and_no_input_crashes_the_evaluator_and_each_ends_soon() -> None:
    random = Random(os.environ.get("MOORING_FUZZ_SEED", "mooring"))
    done = compiled = slowest = 0.0
    while done < ROUNDS:
        source = _expression(random, random.randint(0, 4))
        if random.random() < 0.15:
            source = _mutated(random, source)
        elif random.random() < 0.05:
            source = _garbage(random)
        started = time.process_time()
        try:
            made = compile_rules(
                [Rule.from_fields({"when": source[:2_000] or "x", "then": "allow"})], "the policy"
            )
            compiled += 1
        except ConfigError:
            done += 1
            slowest = max(slowest, time.process_time() - started)
            continue
        for _ in range(20):
            known = _facts(random)
            started = time.process_time()
            decision = made.decide(known)
            made.with_facts(known)
            took = time.process_time() - started
            slowest = max(slowest, took)
            assert took < SLOW, source
            assert decision is None or decision.verdict in ("allow", "deny")
            done += 1
    print(f"{done:.0f} evaluations of {compiled:.0f} expressions, the slowest {slowest * 1000:.1f} ms")
    assert compiled > ROUNDS / 100


def test_a_panic_of_the_evaluator_is_an_error_of_the_rule() -> None:
    class PanicException(BaseException):
        pass

    class Program:
        def execute(self, context: Any) -> bool:
            raise PanicException("planted-secret-value")

    one = CompiledRule(rule("true"), "rule 1")
    object.__setattr__(one, "_program", Program())
    with pytest.raises(RuleError, match="the evaluator failed"):
        one.met({})


def test_sizes_are_counted_before_anything_is_converted() -> None:
    check_size({"a": ["x"] * 100})
    with pytest.raises(RuleError, match="too large"):
        check_size({"a": ["x"] * 30_000})
    with pytest.raises(RuleError, match="too large"):
        check_size({"a": "x" * 5_000_000})


def test_arguments_up_to_the_limits_are_evaluated_and_larger_ones_are_not() -> None:
    check_size({str(number): number for number in range(33)}, most=34)
    with pytest.raises(RuleError, match="too large"):
        check_size({str(number): number for number in range(33)}, most=33)
    check_size({"a": "x" * 1_001}, text=1_002)
    with pytest.raises(RuleError, match="too large"):
        check_size({"a": "x" * 1_001}, text=1_001)
    check_size({"a": "x" * 1_000, "b": None, "c": 1.5, "d": True}, most=1, text=0)
    check_size({"a": [1]}, most=3)
    with pytest.raises(RuleError, match="too large"):
        check_size({"a": [1]}, most=2)
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(RuleError, match="nested too deeply"):
        check_size(deep)
