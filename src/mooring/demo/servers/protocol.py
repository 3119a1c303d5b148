"""As much of MCP as a small tool server needs, in both eras, with nothing but the standard library.

`Server.answer` turns one JSON-RPC message into its reply; `serve_stdio` feeds it from standard input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Handler = Callable[..., tuple[str, Any]]
"""Takes the arguments by name; returns the text for a reader and the structured value for a program."""

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
        """The reply to a message; None when it wants none (a notification, or a stray answer)."""
        if "id" not in message or "method" not in message:
            return None
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        result = self._result(message["method"], message.get("params") or {})
        if result is None:
            return reply | {"error": {"code": -32601, "message": f"Method not found: {message['method']}"}}
        if self.era == "modern":
            result = {"resultType": "complete", **result, "_meta": self._signature()}
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
                return {"supportedVersions": [MODERN], **about, **self._freshness()}
            case (_, "tools/list"):
                listed = [tool.definition(name) for name, tool in self.tools.items()]
                return {"tools": listed, **(self._freshness() if self.era == "modern" else {})}
            case (_, "tools/call"):
                return self._call(params.get("name", ""), params.get("arguments") or {})
            case _:
                return None

    def _call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            text, structured = self.tools[name].handler(**arguments)
        except Exception as problem:  # whatever went wrong is an answer, or the caller would wait for ever
            return {"content": [{"type": "text", "text": f"{name}: {problem}"}], "isError": True}
        return {
            "content": [{"type": "text", "text": text}],
            "structuredContent": structured,
            "isError": False,
        }

    def _freshness(self) -> dict[str, Any]:
        return {"ttlMs": 0, "cacheScope": "private"}

    def _signature(self) -> dict[str, Any]:
        return {"io.modelcontextprotocol/serverInfo": {"name": self.name, "version": "1.0"}}


def serve_stdio(server: Server) -> None:
    """Answer messages from standard input, one per line, until it ends."""
    for line in sys.stdin.buffer:
        reply = server.answer(json.loads(line))
        if reply is not None:
            sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
            sys.stdout.buffer.flush()
