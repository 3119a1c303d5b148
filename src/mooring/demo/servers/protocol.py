"""A minimal MCP tool server for both protocol eras, using only the standard library.

`Server.answer` returns the response to a JSON-RPC message; `serve_stdio` reads messages from standard input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Handler = Callable[..., tuple[str, Any]]
"""Called with the arguments by name; returns the text and the structured content."""

HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTool:
    description: str
    properties: Mapping[str, Any]
    handler: Handler
    required: tuple[str, ...] = ()
    read_only: bool = True

    def definition(self, name: str) -> dict[str, Any]:
        schema = {"type": "object", "properties": self.properties, "required": list(self.required)}
        hints = {"readOnlyHint": self.read_only}
        return {"name": name, "description": self.description, "inputSchema": schema, "annotations": hints}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    name: str
    era: Literal["handshake", "modern"]
    instructions: str
    tools: Mapping[str, DemoTool] = field(default_factory=dict[str, DemoTool])

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """The response to a message; None for notifications and responses."""
        if "id" not in message or "method" not in message:
            return None
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        result = self._result(message["method"], message.get("params") or {})
        if result is None:
            return reply | {"error": {"code": -32601, "message": f"Method not found: {message['method']}"}}
        if self.era == "modern":
            result = {"resultType": "complete", **result, "_meta": self._server_info()}
        return reply | {"result": result}

    def _result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        capabilities: dict[str, Any] = {"tools": {}}
        match (self.era, method):
            case ("handshake", "initialize"):
                info = {"name": self.name, "version": "1.0"}
                about = {"capabilities": capabilities, "serverInfo": info, "instructions": self.instructions}
                return {"protocolVersion": HANDSHAKE, **about}
            case ("handshake", "ping"):
                return {}
            case ("modern", "server/discover"):
                about = {"capabilities": capabilities, "instructions": self.instructions}
                return {"supportedVersions": [MODERN], **about, **self._cache_hints()}
            case (_, "tools/list"):
                listed = [tool.definition(name) for name, tool in self.tools.items()]
                return {"tools": listed, **(self._cache_hints() if self.era == "modern" else {})}
            case (_, "tools/call"):
                return self._call(params.get("name", ""), params.get("arguments") or {})
            case _:
                return None

    def _call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            text, structured = self.tools[name].handler(**arguments)
        except Exception as problem:  # without a result the caller would wait for its timeout
            return {"content": [{"type": "text", "text": f"{name}: {problem}"}], "isError": True}
        return {
            "content": [{"type": "text", "text": text}],
            "structuredContent": structured,
            "isError": False,
        }

    def _cache_hints(self) -> dict[str, Any]:
        return {"ttlMs": 0, "cacheScope": "private"}

    def _server_info(self) -> dict[str, Any]:
        return {"io.modelcontextprotocol/serverInfo": {"name": self.name, "version": "1.0"}}


def serve_stdio(server: Server) -> None:
    """Answer messages from standard input, one per line, until end of input."""
    for line in sys.stdin.buffer:
        reply = server.answer(json.loads(line))
        if reply is not None:
            sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
            sys.stdout.buffer.flush()
