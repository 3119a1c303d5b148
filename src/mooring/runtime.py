"""The parts of a host that a session uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mooring.core.catalog import Catalog
from mooring.core.discovery import Mode, VisibleTools
from mooring.core.events import Event
from mooring.core.search import Index, Ranker
from mooring.core.transforms import CallContext
from mooring.core.types import Absence, Result, Tool
from mooring.errors import MooringError
from mooring.local import Provider
from mooring.results.pipeline import ResultPipeline, Rules

if TYPE_CHECKING:
    from mooring.audit import Audit
    from mooring.config.sections import ScriptSettings
    from mooring.policy import ApprovalRequest
    from mooring.policy.guards import GuardChain
    from mooring.session import Session


class Runtime(Protocol):
    """The parts of a host, or of a gateway profile, that a session uses."""

    @property
    def catalog(self) -> Catalog: ...
    @property
    def index(self) -> Index: ...
    @property
    def ranker(self) -> Ranker | None: ...
    @property
    def results(self) -> ResultPipeline: ...
    @property
    def audit(self) -> Audit | None:
        """The audit log, if there is one."""
        ...

    @property
    def discovery(self) -> Mode:
        """The setting for sessions that have none of their own."""
        ...

    @property
    def scripts(self) -> ScriptSettings: ...
    @property
    def workers(self) -> Any: ...
    def plans(self, tool: Tool) -> str | None:
        """Return why a script must have a call of a tool approved; None if it may call it at once."""
        ...

    def denies(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> str | None:
        """Return why the policy denies a call with these arguments, or None."""
        ...

    async def approve(self, request: ApprovalRequest, timeout: float) -> bool: ...
    @property
    def observed(self) -> bool:
        """Whether a stream delivers the events of calls."""
        ...

    def emit(self, event: Event) -> None: ...
    def rules(self, server: str) -> Rules:
        """Return the settings for calls of a server."""
        ...

    def exposure(self, mode: Mode) -> VisibleTools:
        """Return the tools that a new session shows."""
        ...

    def provider(self, name: str, session: Session) -> Provider:
        """Return the provider that runs the tools of a server for this session."""
        ...

    async def leave(self, session: Session) -> None:
        """Close the connections that belong to this session."""
        ...

    async def get_prompt(self, tool: Tool, arguments: Mapping[str, Any], timeout: float | None) -> Result:
        """Return the messages of a prompt that is shown as a tool."""
        ...

    async def arrival(self, tool: str, timeout: float | None) -> None:
        """Wait until the catalog has `tool`, or until no server can still provide it."""
        ...

    def absence(self, tool: str) -> Absence | None:
        """Return the server that may own `tool` and is not connected."""
        ...

    def allows(self, tool: Tool) -> bool:
        """Return whether the policy allows a call without approval."""
        ...

    async def permit(
        self, tool: Tool, arguments: Mapping[str, Any], context: CallContext, timeout: float | None
    ) -> None:
        """Ask for the approval that a call needs; raise PolicyDenied if it is not given."""
        ...

    def context(self, session: Session) -> CallContext:
        """Return the caller, for transforms, rules and guards."""
        ...

    @property
    def by_caller(self) -> bool:
        """Whether the rules hide tools from some callers, or at some times."""
        ...

    def shown_to(self, session: Session, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        """Return the tools that the rules do not hide from this caller now."""
        ...

    @property
    def guards(self) -> GuardChain | None:
        """Checks before and after each call; None if there are none."""
        ...

    def withheld(self, tool: str) -> MooringError | None:
        """Return the error for a tool that exists and is hidden."""
        ...

    def check_running(self) -> None:
        """Raise RuntimeError if the host has not been entered."""
        ...
