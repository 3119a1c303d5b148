"""What a catalog does not show although a server offers it, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from mooring.core.untrusted import line
from mooring.core.values import Value

__all__ = ["Hidden", "HiddenBy", "hidden_document", "hidden_lines"]

HiddenBy = Literal["lock", "policy", "filter", "trust"]
"""`lock`: not what was approved. `policy`: a rule denies it. `filter`: `allow` or `deny` of its server.
`trust`: the file that names the server was not approved, so that it is not started."""

MOST_LISTED = 100
_MOST_NAMES = 8
_LONGEST = 80
_REMEDY: dict[HiddenBy, str] = {
    "lock": "review with `mooring check`, accept with `mooring approve {server}`",
    "trust": "review and accept with `mooring trust`",
}


class Hidden(Value):
    """One tool, or a whole server, that is not shown."""

    server: str
    tool: str | None
    """The server's own name of it; None: all tools of the server."""
    by: HiddenBy
    reason: str


def hidden_document(
    hidden: Sequence[Hidden], redact: Callable[[str], str], *, details: bool
) -> dict[str, Any]:
    """What `/ready` says of it: how many by what; with `details` also which, at most 100 of them."""
    counts: dict[str, int] = {}
    for one in hidden:
        counts[one.by] = counts.get(one.by, 0) + 1
    document: dict[str, Any] = {"count": len(hidden), "by": dict(sorted(counts.items()))}
    if details:
        document["tools"] = [
            {
                "server": one.server,
                "tool": None if one.tool is None else line(redact(one.tool), _LONGEST),
                "by": one.by,
                "reason": line(redact(one.reason), 2 * _LONGEST),
            }
            for one in hidden[:MOST_LISTED]
        ]
    return document


def hidden_lines(hidden: Iterable[Hidden]) -> list[tuple[HiddenBy, str]]:
    """A sentence for each server and cause, with the first few names and what to do."""
    groups: dict[tuple[str, HiddenBy], list[Hidden]] = {}
    for one in hidden:
        groups.setdefault((one.server, one.by), []).append(one)
    return [(by, _sentence(server, by, found)) for (server, by), found in groups.items()]


def _sentence(server: str, by: HiddenBy, found: Sequence[Hidden]) -> str:
    remedy = f"; {_REMEDY[by].format(server=server)}" if by in _REMEDY else ""
    if found[0].tool is None:
        return f"Server {server!r} is not started ({by}): {found[0].reason}{remedy}"
    named = ", ".join(f"{line(one.tool or '', _LONGEST)} ({one.reason})" for one in found[:_MOST_NAMES])
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    what = "1 tool" if len(found) == 1 else f"{len(found)} tools"
    return f"{what} of server {server!r} hidden by the {by}: {named}{more}{remedy}"
