# pyright: basic
"""smolagents. Its agents do not await: use a `SyncHost`, or run the agent in a thread.

with SyncHost.from_config() as host:
    ToolCallingAgent(model=model, tools=smolagents.tools(host)).run("…")
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, content_parts, extra, text

with extra("smolagents"):
    from smolagents import Tool

__all__ = ["tools"]

_TYPES = frozenset(("string", "boolean", "integer", "number", "array", "object", "null"))


def tools(source: AnySource) -> list[Tool]:
    """Return the tools that the model sees now, for `CodeAgent(tools=…)` and `ToolCallingAgent(tools=…)`."""
    bridge = Bridge(source, "plain")
    return [_SmolTool(bridge, entry) for entry in bridge.tools()]


class SmolToolError(Exception):
    """A tool failed; smolagents shows the message to the model and continues."""


class _SmolTool(Tool):
    skip_forward_signature_validation = True
    output_type = "any"

    def __init__(self, bridge: Bridge, entry: CompiledTool) -> None:
        self.name = entry.name
        self.description = entry.description()
        self.inputs = _inputs(entry.schema)
        self._bridge = bridge
        self._entry = entry
        super().__init__()

    def forward(self, /, *values: Any, **arguments: Any) -> Any:
        """Return the text, or the image if there is no text.

        Raises:
            SmolToolError: The call failed; the model sees the reason.
        """
        given = {**dict(zip(self.inputs, values, strict=False)), **arguments}
        # Agents pass None for omitted arguments.
        kept = {name: value for name, value in given.items() if value is not None or not self._optional(name)}
        result = self._bridge.call_now(self._entry.name, kept, self._entry.compiled)
        if result.is_error:
            raise SmolToolError(text(result))
        shown = content_parts(result)
        if len(shown) == 1 and shown[0].mime_type:
            from PIL import Image  # a dependency of smolagents

            return Image.open(BytesIO(shown[0].raw))
        return text(result)

    def _optional(self, name: str) -> bool:
        return bool(self.inputs.get(name, {}).get("nullable"))


def _inputs(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the properties of a schema with the types of smolagents."""
    required = set(schema.get("required", ()))
    found: dict[str, dict[str, Any]] = {}
    for name, member in schema.get("properties", {}).items():
        given = member.get("type", "any")
        kinds = [kind for kind in ([given] if isinstance(given, str) else given) if kind in _TYPES] or ["any"]
        entry = {**member, "type": kinds[0] if len(kinds) == 1 else kinds}
        entry["description"] = member.get("description") or name
        if name not in required:
            entry["nullable"] = True
        found[name] = entry
    return found
