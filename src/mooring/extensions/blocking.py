"""`View` and `ViewBridge` for code without `await`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mooring.core.types import Result

if TYPE_CHECKING:
    from mooring.extensions.bridge import ViewBridge
    from mooring.extensions.views import View

__all__ = ["SyncView", "SyncViewBridge"]


class SyncView:
    """`View` without `await`: made by `SyncHost.view`."""

    def __init__(self, view: View, do: Any) -> None:
        self.tool, self.server, self.uri, self.html = view.tool, view.server, view.uri, view.html
        self.csp, self.permissions, self.allow, self.rules = (
            view.csp,
            view.permissions,
            view.allow,
            view.rules,
        )
        self._view, self._do = view, do

    def __repr__(self) -> str:
        return repr(self._view).replace("<View", "<SyncView", 1)

    def bridge(self, send: Callable[[dict[str, Any]], None], **options: Any) -> SyncViewBridge:
        """Return a bridge that answers the messages of the page; see `View.bridge`. `send` and the callbacks
        run in the thread of the host."""
        return SyncViewBridge(self._view.bridge(send, **options), self._do)


class SyncViewBridge:
    """`ViewBridge` without `await`."""

    def __init__(self, bridge: ViewBridge, do: Any) -> None:
        self._bridge, self._do = bridge, do

    def receive(self, message: object) -> None:
        """Handle one message of the page; see `ViewBridge.receive`."""
        self._do(self._bridge.receive(message))

    def tool_input(self, arguments: Mapping[str, Any], *, partial: bool = False) -> None:
        """See `ViewBridge.tool_input`."""
        self._do(self._bridge.tool_input(arguments, partial=partial))

    def tool_result(self, result: Result) -> None:
        """See `ViewBridge.tool_result`."""
        self._do(self._bridge.tool_result(result))

    def tool_cancelled(self, reason: str = "") -> None:
        """See `ViewBridge.tool_cancelled`."""
        self._do(self._bridge.tool_cancelled(reason))

    def context_changed(self, **fields: Any) -> None:
        """See `ViewBridge.context_changed`."""
        self._do(self._bridge.context_changed(**fields))

    def teardown(self, reason: str = "", timeout: float = 2.0) -> bool:
        """See `ViewBridge.teardown`."""
        return self._do(self._bridge.teardown(reason, timeout))
