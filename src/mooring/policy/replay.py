"""Decisions of a policy about recorded calls: test cases, and lines of an audit log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, Literal, cast

from mooring.config.models import HostConfig
from mooring.config.validate import Settings, as_json, one_of, optional, section, setting, some_text
from mooring.core.rules import Decision, Verdict
from mooring.core.text import line
from mooring.core.transforms import CallContext
from mooring.core.types import EMPTY, Tool
from mooring.core.value import Value
from mooring.errors import ConfigError
from mooring.policy.enforce import PolicyEnforcer
from mooring.servers.state import CurrentConfig

MASKS = ("***", "…", " items>", "<int>", "<too long to show>")
"""Replacements of values in the audit log: whole texts, or ends of texts."""


def enforcer(config: HostConfig) -> PolicyEnforcer:
    """Return the policies of a configuration, without a host.

    Raises:
        ConfigError: A rule is wrong.
    """
    servers = {server.name: server for server in config.servers}
    current = CurrentConfig(config)
    return PolicyEnforcer(
        own=frozenset(), current=current, servers=servers, ask=None, emit=lambda event: None
    )


# --- test cases


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a mapping")
    return cast("Mapping[str, Any]", as_json(cast("object", value)))


def _time(value: object) -> datetime:
    # Without quotes it is a date or a time in YAML and TOML.
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    try:
        return _time(datetime.fromisoformat(some_text(value)))
    except ValueError:
        raise ValueError("must be a time such as 2026-03-01T09:30:00Z") from None


class CallCase(Settings):
    """A call in a test case."""

    server: str = setting(some_text)
    tool: str = setting(some_text)
    arguments: Mapping[str, Any] = setting(_mapping, default=EMPTY)
    principal: str | None = setting(optional(some_text), default=None)
    profile: str | None = setting(optional(some_text), default=None)
    annotations: Mapping[str, Any] = setting(_mapping, default=EMPTY)
    now: datetime | None = setting(optional(_time), default=None)


class Case(Settings):
    """A call and the decision that is expected."""

    name: str | None = setting(optional(some_text), default=None)
    call: CallCase = setting(section(CallCase))
    expect: Verdict = setting(one_of("allow", "ask", "deny"))
    reason: str | None = setting(optional(some_text), default=None)
    """A part of the reason."""


class Outcome(Value):
    case: Case
    name: str
    decision: Decision

    @property
    def ok(self) -> bool:
        said = self.case.reason is None or self.case.reason in self.decision.reason
        return said and self.decision.verdict == self.case.expect


def read_cases(document: Mapping[str, Any], file: str) -> tuple[Case, ...]:
    """Return the cases of a test file.

    Raises:
        ConfigError: The document is not a test file.
    """
    items: object = document.get("cases")
    if not isinstance(items, list) or not items:
        raise ConfigError("has no 'cases': a list of 'call' and 'expect'", file=file)
    read, found = section(Case), list[Case]()
    for number, item in enumerate(cast("list[object]", items), 1):
        try:
            found.append(read(item))
        except (ConfigError, ValueError) as problem:
            raise ConfigError(str(problem), file=file, place=f"cases[{number}]") from None
    return tuple(found)


def run_cases(cases: Iterable[Case], policy: PolicyEnforcer) -> Iterator[Outcome]:
    """Return the decision of the policy about each case."""
    for number, case in enumerate(cases, 1):
        call = case.call
        tool = _tool(call.server, call.tool, call.annotations)
        context = CallContext(principal=call.principal, profile=call.profile)
        decision = policy.decision(tool, call.arguments, context, now=call.now)
        yield Outcome(case=case, name=case.name or f"case {number}", decision=decision)


# --- audit logs


class PastCall(Value):
    """A call in an audit log, and the current decision of the policy about it."""

    time: str
    server: str
    tool: str
    principal: str | None
    outcome: str
    result: Literal["same", "refused", "asked", "unknown"]
    """`refused` and `asked`: it was made, and would now be denied or need approval. `unknown`: the log does
    not hold what the rules need."""
    reason: str = ""


def replay(
    lines: Iterable[bytes], policy: PolicyEnforcer, annotations: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Iterator[PastCall]:
    """Return the decision of the policy about each call of an audit log. Other lines are skipped.

    Args:
        lines: The lines of the log.
        policy: The policy to try.
        annotations: Of known tools, by server and the server's own name.

    Raises:
        ValueError: The lines are not those of an audit log.
    """
    lines = list(lines)
    entries = list(_entries(lines))
    if not entries and not any(_is_of_a_log(one) for one in lines) and any(one.strip() for one in lines):
        raise ValueError("is not an audit log: no line of it is a JSON object with `time`")
    # Without arguments, nothing is written about them; with `arguments: none`, never anything.
    described = any(isinstance(entry.get("arguments"), dict) for entry in entries)
    for entry in entries:
        server, tool = str(entry["server"]), str(entry["tool"])
        known = annotations.get((server, tool))
        arguments, inexact = _arguments(entry.get("arguments"), empty=described)
        who = entry.get("principal")
        context = CallContext(
            principal=str(who) if who not in (None, "anonymous") else None,
            profile=str(entry.get("profile") or ""),
        )
        decision = policy.replayed(
            _tool(server, tool, known or EMPTY),
            arguments,
            context,
            now=datetime.fromisoformat(str(entry["time"])),
            inexact=inexact,
            hints=known is not None,
        )
        yield _past(entry, decision)


def _past(entry: Mapping[str, Any], decision: Decision | None) -> PastCall:
    made = entry.get("outcome") != "refused"
    result: Literal["same", "refused", "asked", "unknown"] = "same"
    if decision is None:
        result = "unknown"
    elif decision.verdict == "deny" and made:
        result = "refused"
    elif decision.verdict == "ask" and made and entry.get("approval") != "given":
        result = "asked"
    return PastCall(
        time=str(entry["time"]),
        server=line(str(entry["server"]), 200),
        tool=line(str(entry["tool"]), 200),
        principal=None if entry.get("principal") is None else line(str(entry["principal"]), 200),
        outcome=line(str(entry.get("outcome")), 40),
        result=result,
        reason="" if decision is None else decision.reason,
    )


def _is_of_a_log(raw: bytes) -> bool:
    try:
        entry: object = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(entry, dict) and "time" in entry


def _entries(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for raw in lines:
        try:
            entry: Any = json.loads(raw)
            datetime.fromisoformat(entry["time"])
        except (ValueError, RecursionError, KeyError, TypeError):
            continue
        if entry.get("verb") == "call" and entry.get("server") and entry.get("tool"):
            yield entry


def _arguments(written: object, *, empty: bool) -> tuple[Mapping[str, Any] | None, frozenset[str]]:
    """Return the arguments that a line holds, and the names of those that are masked or cut."""
    if written is None:
        return (EMPTY if empty else None), frozenset()
    if not isinstance(written, dict):
        return None, frozenset()
    found = cast("dict[str, Any]", written)
    if "…" in found:  # more than the log shows
        return None, frozenset()
    inexact = frozenset(name for name, value in found.items() if _masked(value) or _masked(name))
    return {name: value for name, value in found.items() if name not in inexact}, inexact


def _masked(value: object) -> bool:
    text = json.dumps(value, ensure_ascii=False)
    return any(mask in text for mask in MASKS)


def _tool(server: str, name: str, annotations: Mapping[str, Any]) -> Tool:
    return Tool(name=f"{server}/{name}", server=server, remote_name=name, annotations=annotations)
