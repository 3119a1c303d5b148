"""What is known about another program: its files, its spelling of a server, and what it can express."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mooring.config.load import folders_up
from mooring.config.references import Kind

SiteScope = Literal["managed", "project", "user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What decides where files are."""

    home: Path
    cwd: Path
    env: Mapping[str, str]
    platform: str

    @classmethod
    def this(cls) -> Machine:
        return cls(home=Path.home(), cwd=Path.cwd(), env=os.environ, platform=sys.platform)

    @property
    def places(self) -> dict[str, str]:
        """The folders that the templates of `Site` name."""
        roaming = self.env.get("APPDATA") or str(self.home / "AppData" / "Roaming")
        config = self.env.get("XDG_CONFIG_HOME") or str(self.home / ".config")
        match self.platform:
            case "win32":
                support, config, shared = roaming, roaming, self.env.get("PROGRAMDATA", "C:/ProgramData")
            case "darwin":
                support = str(self.home / "Library" / "Application Support")
                shared = "/Library/Application Support"
            case _:
                support, shared = config, "/etc"
        homes = {
            "codex": self.env.get("CODEX_HOME") or str(self.home / ".codex"),
            "copilot": self.env.get("COPILOT_HOME") or str(self.home / ".copilot"),
        }
        return {"home": str(self.home), "config": config, "support": support, "shared": shared, **homes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One file that a program reads. `template` is relative to a project, or begins with a place."""

    template: str
    scope: SiteScope = "user"
    platforms: tuple[str, ...] = ()
    """Where it is; empty: everywhere."""

    def path(self, machine: Machine) -> Path | None:
        """The file, whether or not it exists; None on a machine that has no such place."""
        if self.platforms and machine.platform not in self.platforms:
            return None
        if self.scope != "project":
            return Path(self.template.format(**machine.places))
        found = (folder / self.template for folder in folders_up(machine.cwd))
        return next((path for path in found if os.path.isfile(path)), machine.cwd / self.template)


def user(template: str, *platforms: str) -> Site:
    return Site(template=template, platforms=platforms)


def project(template: str) -> Site:
    return Site(template=template, scope="project")


def managed(template: str, *platforms: str) -> Site:
    return Site(template=template, scope="managed", platforms=platforms)


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
