"""What is known of one other program: a row of data, and the functions where data is not enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mooring.config.hosts.machine import Site
from mooring.core.expand import Kind

__all__ = ["Adapt", "Carried", "Outbound", "Program", "Syntax", "UnfitError"]

Syntax = Literal["shell", "env", "brace", "dollar", "none"]
"""How a program writes a variable: ${X}, ${env:X}, {env:X}, $X or ${X}, not at all."""
Unit = Literal["s", "ms"]
_EVERYWHERE = frozenset({"command", "args", "env", "url", "headers", "cwd"})


class UnfitError(ValueError):
    """A server that cannot be carried over, with the reason."""


@dataclass(slots=True, kw_only=True)
class Carried:
    """One entry on its way, with what got lost."""

    name: str
    raw: dict[str, Any]
    document: Mapping[str, Any]
    """The whole file it stands in."""
    notes: list[str] = field(default_factory=list[str])


Adapt = Callable[[Carried], None]
"""Turns a program's own way of saying something into words that every reader of ours knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """How a program wants a server written."""

    site: Mapping[str, Site]
    """By scope, where."""
    root: tuple[str, ...] = ("mcpServers",)
    stdio: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What stands in every entry that runs a program."""
    http: Mapping[str, Any] | None = field(default_factory=dict[str, Any])
    """What stands in every entry that reaches a URL; None when the program cannot."""
    sse: Mapping[str, Any] | None = None
    """The same for the old transport."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its words for our fields. A field that is not here, nor in the usual ones, is not written."""
    expands: frozenset[str] = _EVERYWHERE
    """Fields in which references are looked up."""
    joined: bool = False
    """Program and arguments are one list."""
    named: bool = False
    """The entry repeats its name."""
    sse_url: str | None = None
    """The key of the address for the old transport, where that is another one."""
    variable_headers: bool = False
    """Headers may name variables, under keys of their own."""
    switch: Literal["disabled", "enabled"] | None = None
    call_timeout: tuple[str, Unit] | None = None
    connect_timeout: tuple[str, Unit] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Another program that keeps MCP servers in a file."""

    name: str
    title: str
    sites: tuple[Site, ...] = ()
    roots: tuple[tuple[str, ...], ...] = (("mcpServers",),)
    per_folder: tuple[str, str] | None = None
    """Where a user's file keeps servers for single folders: the key before the folder, and the one after."""
    bare: bool = False
    """The whole file may be the mapping of servers."""
    syntax: Syntax = "shell"
    looks_up: frozenset[Kind] = frozenset({"env"})
    """What else than variables its `${…}` can name. Anything else is text: it must not come to life here."""
    adapt: Adapt | None = None
    timeout: tuple[Literal["call_timeout", "connect_timeout"], Unit] | None = None
    """What its bare `timeout` means."""
    drops: frozenset[str] = frozenset()
    """Keys of its own that have no meaning here."""
    out: Outbound | None = None
