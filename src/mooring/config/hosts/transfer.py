"""Which of the servers that were found elsewhere come over, under which name, and why the others do not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mooring.config.hosts.reading import Candidate
from mooring.core.config import ServerConfig

__all__ = ["Action", "Move", "identity", "plan_import"]

_CONFIGURED = "configured already"
Action = Literal["add", "replace", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What becomes of one candidate."""

    candidate: Candidate
    action: Action
    name: str
    """Under which it is written."""
    reason: str = ""
    """Why it is not, or not under its own name."""


def identity(server: ServerConfig) -> tuple[object, ...]:
    """What is run or reached: two entries with the same are one server, whatever they are called."""
    if server.command is not None:
        return server.command, server.args, server.cwd, tuple(sorted(server.env.items()))
    return server.url, tuple(sorted(server.headers.items()))


def plan_import(
    found: Sequence[Candidate],
    present: Mapping[str, ServerConfig],
    taken: Collection[str] = (),
    *,
    rename: bool,
    force: bool,
) -> list[Move]:
    """One move for each candidate, in order: what comes first wins a name.

    Args:
        found: The servers of other programs.
        present: What is configured already, by name.
        taken: Names that are written already, though perhaps not well.
        rename: Import a clash of names under another name.
        force: Let it replace what is there.
    """
    known = {identity(server): name for name, server in present.items()}
    origin = dict.fromkeys([*present, *taken], _CONFIGURED)
    moves: list[Move] = []
    for candidate in found:
        move = _move(candidate, known, origin, rename=rename, force=force)
        moves.append(move)
        if move.action != "skip":
            server = ServerConfig(name=move.name, **(candidate.entry or {}))
            known[identity(server)] = move.name
            origin[move.name] = f"of {candidate.program.title}"
    return moves


def _move(
    candidate: Candidate,
    known: Mapping[tuple[object, ...], str],
    origin: Mapping[str, str],
    *,
    rename: bool,
    force: bool,
) -> Move:
    name = candidate.name
    if candidate.entry is None:
        return Move(candidate=candidate, action="skip", name=name, reason=candidate.problem or "")
    same = known.get(identity(ServerConfig(name=name, **candidate.entry)))
    if same is not None:
        called = "" if same == name else f" as {same!r}"
        return Move(candidate=candidate, action="skip", name=name, reason=f"is there already{called}")
    if name not in origin:
        return Move(candidate=candidate, action="add", name=name)
    if force and origin[name] == _CONFIGURED:
        return Move(candidate=candidate, action="replace", name=name, reason="replaces what is there")
    other = _free(f"{name}-{candidate.program.name}", origin)
    if rename:
        return Move(candidate=candidate, action="add", name=other, reason=f"imported as {other!r}")
    way = f"--rename imports it as {other!r}"
    way += ", --force replaces the other" if origin[name] == _CONFIGURED else ""
    reason = f"another server of that name is {origin[name]}; {way}"
    return Move(candidate=candidate, action="skip", name=name, reason=reason)


def _free(name: str, taken: Mapping[str, str]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free
