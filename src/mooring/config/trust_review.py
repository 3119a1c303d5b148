"""The servers and settings of a project file, for a person who reviews and approves them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mooring.config import trust
from mooring.config.load import FoundFile, found_files, read_files
from mooring.config.models import ConfigWarning, ServerConfig
from mooring.config.trust import Approval

__all__ = ["Content", "approve_entries", "read_content"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Servers and settings of a project file."""

    servers: tuple[ServerConfig, ...]
    settings: Mapping[str, Any]
    warnings: tuple[ConfigWarning, ...]

    @property
    def marks(self) -> dict[str, str]:
        return {server.name: trust.mark(server) for server in self.servers}

    @property
    def settings_mark(self) -> str | None:
        return trust.settings_mark(self.settings) if self.settings else None


def read_content(path: Path) -> Content:
    """Return everything in a project file that needs an approval, whether it has one or not."""
    user = [file for file in found_files(env={}) if file.scope == "user"]
    files = [*user, FoundFile(path=path, scope="project")]
    whole = read_files(files, approval=lambda file: Approval(everything=True))
    withheld = read_files(files, approval=lambda file: Approval()).withheld
    refused = withheld.servers if withheld else ()
    servers = {server.name: server for server in (*refused, *whole.servers) if server.scope == "project"}
    settings = withheld.settings if withheld else dict[str, Any]()
    return Content(servers=tuple(servers.values()), settings=settings, warnings=whole.warnings)


def approve_entries(path: Path, names: Collection[str]) -> None:
    """Approve entries that the user has just written; other approvals do not change."""
    approval, content = trust.approval_of(str(path)), read_content(path)
    own = {name: mark for name, mark in content.marks.items() if name in names}
    trust.approve(str(path), {**approval.servers, **own}, settings=approval.settings)
