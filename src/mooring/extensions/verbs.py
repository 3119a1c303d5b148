"""The verbs of `Host` for extensions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mooring.concurrency import OrderedCallback
from mooring.core.types import EMPTY, Result, Skill, Tool
from mooring.errors import ConfigError
from mooring.extensions.skills import Skills
from mooring.extensions.views import View, Views
from mooring.local import OnProgress
from mooring.session import HostRuntime, Session

__all__ = ["ExtensionVerbs", "call_for_page", "checked_extensions"]


def checked_extensions(given: Mapping[str, Mapping[str, Any]] | None) -> Mapping[str, Mapping[str, Any]]:
    """Return the extensions that an application declares.

    Raises:
        ConfigError: An identifier is invalid, or the settings are not a mapping.
    """
    from mooring.core.extensions import check_identifier

    for name, settings in (given or EMPTY).items():
        try:
            check_identifier(name)
        except ValueError as problem:
            raise ConfigError(f"extensions: {problem}") from None
        if not isinstance(settings, Mapping):  # at run time the type is not checked
            raise ConfigError(f"extensions: the settings of {name!r} must be a mapping, such as {{}}")
    return given or EMPTY


async def call_for_page(
    session: Session,
    tool: Tool,
    arguments: Mapping[str, Any] | None,
    timeout: float | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Call a tool for a page of its server (MCP Apps), with the same rules as other calls. The caller checks
    that the page may use the tool. Not for applications: see `ViewBridge`."""
    from mooring.servers.requests import FOR_PAGE  # loads the transports

    audit = session._runtime.audit  # pyright: ignore[reportPrivateUsage]
    reports = None if on_progress is None else OrderedCallback(on_progress, "on_progress", timeout)
    work = session._call(tool.name, arguments, timeout, reports, 0, tool)  # pyright: ignore[reportPrivateUsage]
    mark = FOR_PAGE.set(True)
    try:
        result = await (work if audit is None else audit.call(session, tool.name, arguments, work))
    finally:
        FOR_PAGE.reset(mark)
    if reports is not None:
        await reports.delivered()
    return result


class ExtensionVerbs:
    """The verbs of `Host` for skills and for pages of tools."""

    _runtime: HostRuntime
    _shared: Session
    _skills: Skills
    _views: Views

    def skills(self) -> tuple[Skill, ...]:
        """Return the skills of all servers, named `<server>/<name>`, without the contents of their files.
        `Session.read_skill` reads one."""
        self._runtime.check_running()
        return self._skills.list()

    async def view(
        self, tool_name: str, *, session: Session | None = None, timeout: float | None = None
    ) -> View:
        """Return the page of a tool (MCP Apps), to show in a sandboxed iframe.

        Args:
            tool_name: The name of a tool in the catalog.
            session: The conversation that the page belongs to: its calls use that session. Default: the
                shared session.
            timeout: Seconds to read the page. Default: `call_timeout` of the server.

        Raises:
            UnknownTool: There is no such tool.
            CallError: The tool has no page, or the server failed.
            ToolChanged: The page is not the approved one.
        """
        self._runtime.check_running()
        await self._runtime.arrival(tool_name, timeout)
        return await self._views.open(tool_name, partial(call_for_page, session or self._shared), timeout)
