"""Approvals of a person: for one call, or for the plan of a script."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Literal, TypeVar

import anyio

from mooring.concurrency import call_back
from mooring.config.logs import logger
from mooring.core.text import clean_json, line
from mooring.core.types import Tool
from mooring.core.value import Value

log = logger("mooring.policy")

Q = TypeVar("Q")


async def approved_by(
    callback: Callable[[Q], bool | Awaitable[bool]], question: Q, limit: float | None
) -> bool:
    """Return whether the callback returns True within `limit` seconds (None: no limit).

    An exception counts as False and is logged. A plain function runs in a thread, because it may wait for a
    person.
    """
    with anyio.move_on_after(limit):
        try:
            return await call_back(callback, question) is True
        except Exception:
            log.exception("approval callback failed; the request is denied")
    return False


ANSWER_TIMEOUT = 300.0
"""Seconds that a person has to approve, unless the call has a timeout of its own."""
LONGEST_PLAN = 8_000
LONGEST_SHOWN = 600
"""Characters of the arguments of one planned call."""
PLANNED: ContextVar[tuple[str, str] | None] = ContextVar("mooring_planned", default=None)
"""The write of an approved plan that this task makes: local name and arguments as canonical JSON."""


class ApprovalRequest(Value):
    """A call that needs approval, or the plan of a script (`name` is `script_run`, `arguments` the plan).

    Title and arguments are unchecked text of the server and the model: clean them before a person reads them
    (`mooring.core.text.clean`).
    """

    server: str
    tool: str
    """The name of the tool at the server."""
    name: str
    """The name of the tool in the catalog."""
    title: str | None
    arguments: Mapping[str, Any]
    reason: str
    """The rule that requires the approval."""
    session: str
    """The id of the session that calls."""

    def __repr__(self) -> str:
        """Show the names of the arguments only: their values may hold secrets."""
        names = sorted(self.arguments)
        return f"ApprovalRequest({self.server!r}, {self.tool!r}, arguments={names}, reason={self.reason!r})"


def plan_text(request: ApprovalRequest) -> str:
    """Return the plan of a script as text, with the untrusted parts cleaned."""
    plan: Any = request.arguments
    calls = "1 call" if plan["writes"] == 1 else f"{plan['writes']} calls"
    lines = [f"A script wants to make {calls} that may change something:"]
    for entry in plan["calls"]:
        lines.append(
            f"- {entry['count']} x {line(entry['tool'], 80)} of server {line(entry['server'], 80)!r}"
        )
        lines += [f"    {_shown(one)}" for one in entry["first"]]
        if entry["count"] > len(entry["first"]):
            lines.append(f"    … and {entry['count'] - len(entry['first'])} more")
    done = ", ".join(f"{line(tool, 80)} ({count})" for tool, count in plan["done"].items()) or "nothing"
    lines.append(f"So far: {done}.")
    if not plan["complete"]:
        lines.append(f"Then: {line(plan['then'], 200)}.")
    text = "\n".join(lines)
    return text if len(text) <= LONGEST_PLAN else f"{text[:LONGEST_PLAN]}… ({len(text):,} characters)"


def _shown(arguments: Any) -> str:
    """Return the arguments of a call for a person: invisible characters escaped, cut characters counted."""
    text = clean_json(json.dumps(arguments, ensure_ascii=False))
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text):,} characters)"


Approver = Callable[[ApprovalRequest], "bool | Awaitable[bool]"]


def is_planned(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Whether this call is the write of an approved plan that this task makes."""
    if not _matches(tool, arguments):
        return False
    note_approval("given")
    return True


def keep_planned(tool: Tool, given: Mapping[str, Any], sent: Mapping[str, Any]) -> None:
    """If the call with the `given` arguments is the write of an approved plan, it also is with the arguments
    that the host's transform and guards made of them."""
    if sent is not given and _matches(tool, given):
        PLANNED.set((tool.name, _canonical(sent)))


def _matches(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    planned = PLANNED.get()
    return planned is not None and planned == (tool.name, _canonical(arguments))


def _canonical(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True, default=dict)


def note_approval(approval: Literal["given", "denied"]) -> None:
    """Record the answer for the audit log."""
    from mooring.audit import NOTE

    if (note := NOTE.get()) is not None:
        note.approval = approval
