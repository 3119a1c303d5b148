"""Handwritten clients of the gateway over HTTP, one per era: raw messages, so that everything can be sent."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Reply:
    """The answer to a POST: its status, the messages in it, and the last of them."""

    def __init__(self, status: int, headers: Any, messages: list[dict[str, Any]]) -> None:
        self.status, self.headers, self.messages = status, headers, messages

    @property
    def last(self) -> dict[str, Any]:
        return self.messages[-1]

    @property
    def result(self) -> dict[str, Any]:
        return self.last["result"]

    @property
    def error(self) -> dict[str, Any]:
        return self.last["error"]

    @property
    def text(self) -> str:
        return self.result["content"][0]["text"]


class Caller:
    """A client of one era at one URL."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, *, modern: bool, headers: dict[str, str] | None = None
    ) -> None:
        self.http, self.url, self.modern = http, url, modern
        self.headers = dict(headers or {})
        self.capabilities: dict[str, Any] = {}
        self.session: str | None = None
        self._ids = itertools.count(1)

    async def begin(self, capabilities: dict[str, Any] | None = None) -> Reply | None:
        """Shake hands, where the era has that."""
        self.capabilities = capabilities or {}
        if self.modern:
            return None
        params = {
            "protocolVersion": HANDSHAKE,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "caller", "version": "1"},
        }
        reply = await self.ask("initialize", params)
        self.session = reply.headers.get("Mcp-Session-Id")
        await self.tell("notifications/initialized")
        return reply

    def message(
        self, method: str, params: dict[str, Any] | None, key: Any
    ) -> tuple[dict[str, Any], dict[str, str]]:
        given = dict(params or {})
        headers = {**ACCEPT, **self.headers}
        if self.modern:
            meta = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            }
            given["_meta"] = {**meta, **given.get("_meta", {})}
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            if method in _NAMED:
                headers["Mcp-Name"] = given[_NAMED[method]]
        elif self.session:
            headers |= {"MCP-Protocol-Version": HANDSHAKE, "Mcp-Session-Id": self.session}
        return {"jsonrpc": "2.0", "id": key, "method": method, "params": given}, headers

    async def ask(self, method: str, params: dict[str, Any] | None = None, **headers: str) -> Reply:
        body, usual = self.message(method, params, next(self._ids))
        return await self.post(body, {**usual, **headers})

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Reply:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments or {}, **more})

    async def tools(self) -> list[str]:
        return [tool["name"] for tool in (await self.ask("tools/list")).result["tools"]]

    async def tell(self, method: str, params: dict[str, Any] | None = None) -> int:
        body, headers = self.message(method, params, None)
        del body["id"]
        return (await self.post(body, headers)).status

    async def post(self, body: Any, headers: dict[str, str]) -> Reply:
        data = body if isinstance(body, bytes | str) else json.dumps(body)
        async with self.http.post(self.url, data=data, headers=headers) as response:
            if "event-stream" in response.headers.get("Content-Type", ""):
                messages = [event async for event in events(response)]
            else:
                text = await response.text()
                messages = [json.loads(text)] if text else []
            return Reply(response.status, response.headers, messages)

    @asynccontextmanager
    async def stream(
        self, body: Any, headers: dict[str, str]
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The messages of a POST's stream while they come."""
        async with self.http.post(self.url, data=json.dumps(body), headers=headers) as response:
            yield events(response)

    @asynccontextmanager
    async def standing(self) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The messages of the session's own stream."""
        assert self.session is not None
        headers = {"Accept": "text/event-stream", "Mcp-Session-Id": self.session, **self.headers}
        async with self.http.get(self.url, headers=headers) as response:
            assert response.status == 200, await response.text()
            yield events(response)

    @asynccontextmanager
    async def listening(self, **wanted: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        body, headers = self.message("subscriptions/listen", {"notifications": wanted}, "listen")
        async with self.stream(body, headers) as messages:
            first = await anext(messages)
            assert first["method"] == "notifications/subscriptions/acknowledged", first
            yield messages


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in response.content:
        if line.startswith(b"data:") and line[5:].strip():
            yield json.loads(line[5:])


async def soon(messages: AsyncIterator[dict[str, Any]], seconds: float = 10.0) -> dict[str, Any]:
    """The next message, within a bound."""
    async with asyncio.timeout(seconds):
        return await anext(messages)
