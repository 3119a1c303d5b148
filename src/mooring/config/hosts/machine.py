"""Where programs keep their files on a machine. Home, variables and platform come in as values."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mooring.config.load import folders_up

__all__ = ["Machine", "Site", "SiteScope", "managed", "project", "user"]

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
