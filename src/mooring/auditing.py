"""Whether there is an audit log, and which: it is opened, moved and closed while a host runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mooring.audit import Audit
    from mooring.core.audit import AuditSettings

__all__ = ["Auditing"]


class Auditing:
    """Has the log of a host, if there is one."""

    def __init__(self, settings: AuditSettings | None, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self.log = self._at(settings)

    async def note_in(self, settings: AuditSettings | None) -> None:
        """From now on note every call in this audit log, or in none."""
        old, self.log = self.log, self._at(settings)
        if old is not None:
            await old.close()

    async def apply(self, old: AuditSettings | None, new: AuditSettings | None) -> None:
        """Take over what has changed in the configuration."""
        if old != new:
            await self.note_in(new)

    async def check(self) -> None:
        """Tell at once if the log cannot be written."""
        if self.log is not None:
            await self.log.check()

    async def close(self) -> None:
        """Write what is not written yet."""
        if self.log is not None:
            await self.log.close()

    def _at(self, settings: AuditSettings | None) -> Audit | None:
        if settings is None:
            return None
        from mooring.audit import Audit  # most hosts note nothing

        return Audit(settings, self._redact)
