# pyright: basic
"""smolagents. Its agents do not await: use a `SyncHost`, or run the agent in a thread.

with SyncHost.from_config() as host:
    ToolCallingAgent(model=model, tools=smolagents.tools(host)).run("…")
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from mooring.adapters._common import AnySource, Bridge, CompiledTool, extra, pieces, text

with extra("smolagents"):
    from smolagents import Tool

__all__ = ["tools"]

_TYPES = frozenset(("string", "boolean", "integer", "number", "array", "object", "null"))


def tools(source: AnySource) -> list[Tool]:
    """The tools that the model sees now, for `CodeAgent(tools=…)` and `ToolCallingAgent(tools=…)`."""
    bridge = Bridge(source, "plain")
    return [_SmolTool(bridge, offer) for offer in bridge.offers()]


class SmolToolError(Exception):
    """A tool failed; smolagents shows the message to the model and goes on."""


class _SmolTool(Tool):
    skip_forward_signature_validation = True
    output_type = "any"

    def __init__(self, bridge: Bridge, offer: CompiledTool) -> None:
        self.name = offer.name
        self.description = offer.description()
        self.inputs = _inputs(offer.schema)
        self._bridge = bridge
        self._offer = offer
        super().__init__()

    def forward(self, /, *values: Any, **arguments: Any) -> Any:
        """The text, or the image if there is nothing else.

        Raises:
            ToolError: the call failed; the model reads why.
        """
        given = {**dict(zip(self.inputs, values, strict=False)), **arguments}
        # Its agents fill in null for what the model left out.
        kept = {name: value for name, value in given.items() if value is not None or not self._optional(name)}
        result = self._bridge.call_now(self._offer.name, kept, self._offer.compiled)
        if result.is_error:
            raise SmolToolError(text(result))
        shown = pieces(result)
        if len(shown) == 1 and shown[0].mime_type:
            from PIL import Image  # smolagents brings it

            return Image.open(BytesIO(shown[0].raw))
        return text(result)

    def _optional(self, name: str) -> bool:
        return bool(self.inputs.get(name, {}).get("nullable"))


def _inputs(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The members of a schema with one of the ten types of smolagents each."""
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
