"""Which tools a session shows its model, and in what order.

Prompt caches hold a prompt up to the first byte that differs. So the order in which tools were first
shown is kept for as long as the session lives: what comes later comes after, whatever its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from mooring.core.catalog import Catalog
from mooring.core.discovery import CALL, DISCOVERY
from mooring.core.reading import READ
from mooring.core.tokens import tool_cost
from mooring.core.types import Tool
from mooring.core.values import Value
from mooring.errors import ConfigError

__all__ = ["BUDGET", "Exposure", "Mode", "Reveal", "always_shown", "checked_mode", "plan_exposure"]

Mode = Literal["auto", "always", "never"]
"""Discovery tools in place of the catalog: when it is too large, in any case, or never."""

BUDGET = 8_000
"""Estimated tokens of definitions up to which mode `auto` shows the whole catalog."""


def checked_mode(given: Mode | None) -> Mode | None:
    """Return `given`.

    Raises:
        ConfigError: it is not one of the modes.
    """
    if given in (None, "auto", "always", "never"):
        return given
    raise ConfigError(f"discovery must be 'auto', 'always' or 'never', not {given!r}")


class Exposure(Value):
    """What a session starts with."""

    discovery: bool
    """Whether the discovery tools are shown. Decided once per session: a change would rewrite the prompt."""
    names: tuple[str, ...]
    """Local names of the tools to show beside them, in order."""


def plan_exposure(
    catalog: Catalog, mode: Mode = "auto", budget: int = BUDGET, always: Sequence[str] = ()
) -> Exposure:
    """Return what to show: the whole catalog, or the discovery tools and those that match `always`.

    Args:
        catalog: What there is.
        mode: See `Mode`.
        budget: Estimated tokens that the whole catalog may take in mode `auto`.
        always: Globs on local names.
    """
    if mode == "never" or (mode == "auto" and _fits(catalog.tools.values(), budget)):
        return Exposure(discovery=False, names=tuple(catalog.tools))
    pinned = tuple(name for name in catalog.tools if any(fnmatchcase(name, glob) for glob in always))
    return Exposure(discovery=True, names=pinned)


def always_shown(catalog: Catalog, globs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the local names of the tools that a server's globs, by its name, match by their own names."""
    return [
        name
        for name, tool in catalog.tools.items()
        if any(fnmatchcase(tool.remote_name, glob) for glob in globs.get(tool.server, ()))
    ]


def _fits(tools: Iterable[Tool], budget: int) -> bool:
    for tool in tools:
        budget -= tool_cost(tool)
        if budget < 0:
            return False
    return True


class Reveal(Value):
    """The tools that a session has shown, in the order in which it first did. It only ever grows at the end.

    A tool that leaves the catalog keeps its place here and is not shown meanwhile; when it comes back,
    the prompt is again what it was.
    """

    names: tuple[str, ...] = ()

    def plus(self, names: Iterable[str]) -> Reveal:
        """Return a reveal with these names after those that are there already."""
        known = frozenset(self.names)
        new = tuple(name for name in dict.fromkeys(names) if name not in known)
        return Reveal(names=self.names + new) if new else self

    def tools(self, catalog: Catalog, *, discovery: bool, with_call: bool = False) -> tuple[Tool, ...]:
        """Return what the model sees now: the discovery tools first, then what was revealed.

        Args:
            catalog: The tools that exist.
            discovery: Whether the discovery tools are listed.
            with_call: Whether `tools_call` is listed after them.
        """
        revealed = tuple(
            READ if name == READ.name else catalog.tools[name]
            for name in self.names
            if name == READ.name or name in catalog.tools
        )
        if not discovery:
            return revealed
        return (*DISCOVERY, CALL, *revealed) if with_call else DISCOVERY + revealed
