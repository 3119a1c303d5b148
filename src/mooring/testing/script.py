"""Definitions, responses and faults of a fake server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, cast

from mooring.core.types import EMPTY, Result
from mooring.errors import MooringError
from mooring.local import LocalTools

FaultKind = Literal["hang", "crash", "garbage", "slow", "unauthorized", "rate-limited"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of one request."""

    kind: FaultKind
    seconds: float = 0.0


hang = Fault(kind="hang")
"""The server never responds."""
crash = Fault(kind="crash")
"""The child exits with code 3; over HTTP, the connection is aborted."""
garbage = Fault(kind="garbage")
"""The response is not JSON."""
unauthorized = Fault(kind="unauthorized")
"""HTTP 401; over stdio, a JSON-RPC error."""


def slow(seconds: float) -> Fault:
    """The response is delayed by `seconds`."""
    return Fault(kind="slow", seconds=seconds)


def rate_limited(retry_after: int = 1) -> Fault:
    """HTTP 429 with `Retry-After` in seconds; over stdio, a JSON-RPC error."""
    return Fault(kind="rate-limited", seconds=retry_after)


Era = Literal["both", "handshake", "modern"]
Answer = str | Mapping[str, Any] | Callable[[Mapping[str, Any]], Any]
"""Text, a result (`{"content": [...]}`), or a function of the arguments that returns either."""

HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"


class FakeError(Exception):
    """The request is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One received message."""

    method: str
    params: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """HTTP headers with lower-case names; empty over stdio."""


def params_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a message; empty if it has none."""
    return message.get("params") or EMPTY


def meta_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return params.get("_meta") or EMPTY


class Script:
    """Definitions, responses and faults of one server."""

    def __init__(self, name: str, era: Era, instructions: str | None) -> None:
        self.name, self.era, self.instructions = name, era, instructions
        self.tools: dict[str, dict[str, Any]] = {}
        self.resources: dict[str, dict[str, Any]] = {}
        self.prompts: dict[str, tuple[dict[str, Any], Callable[..., str]]] = {}
        self.unlisted: frozenset[str] = frozenset()
        """URIs of resources that are not listed."""
        self.extensions: dict[str, dict[str, Any]] = {}
        self.methods: dict[str, Answer] = {}
        """Further methods."""
        self.skills: dict[str, dict[str, Any]] = {}
        self.requests: list[Request] = []
        self._functions = LocalTools(name=name)
        self._answers: dict[str, Answer] = {}
        self._faults: dict[str, deque[Fault]] = {}
        self._lasting: dict[str, Fault] = {}

    def function(self, function: Callable[..., Any]) -> None:
        self._functions.add(function)
        tool = self._functions.snapshot.tools[-1]
        self.tools[tool.name] = {
            "name": tool.name,
            "description": tool.description,
            "inputSchema": dict(tool.input_schema),
        }

    def define(self, definition: Mapping[str, Any], answer: Answer) -> None:
        name = str(definition["name"])
        self.tools[name] = dict(definition)
        self._answers[name] = answer

    def fail(self, where: str, fault: Fault, times: int | None) -> None:
        if times is None:
            self._lasting[where] = fault
        else:
            self._faults.setdefault(where, deque()).extend([fault] * times)

    def heal(self) -> None:
        self._faults.clear()
        self._lasting.clear()

    def fault(self, method: str, params: Mapping[str, Any]) -> Fault | None:
        """Return the fault of this request, if any, and count it."""
        for where in filter(None, (params.get("name"), method)):
            if waiting := self._faults.get(where):
                return waiting.popleft()
            if where in self._lasting:
                return self._lasting[where]
        return None

    async def reply(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON-RPC response to a request."""
        params = params_of(message)
        envelope = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            result = await self.result(message["method"], params)
        except FakeError as refused:
            return {**envelope, "error": {"code": refused.code, "message": str(refused)}}
        if VERSION_KEY in meta_of(params):
            hints = {"ttlMs": 0, "cacheScope": "private"} if message["method"].endswith("/list") else {}
            result = {"resultType": "complete", **hints, **result}
        return {**envelope, "result": result}

    async def result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a request.

        Raises:
            FakeError: The response is an error.
        """
        match method:
            case "server/discover" if self.era != "handshake":
                return {"supportedVersions": [MODERN], "ttlMs": 0, "cacheScope": "private", **self.hello()}
            case "initialize" if self.era != "modern":
                return {"protocolVersion": HANDSHAKE, **self.hello()}
            case "ping":
                return {}
            case "tools/list":
                return {"tools": list(self.tools.values())}
            case "resources/list":
                shown = [one for uri, one in self.resources.items() if uri not in self.unlisted]
                return {"resources": [_without(resource, "text", "_meta") for resource in shown]}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "prompts/list":
                return {"prompts": [definition for definition, _ in self.prompts.values()]}
            case "tools/call":
                return await self._call(params.get("name", ""), params.get("arguments") or EMPTY)
            case "resources/read":
                return self._read(params.get("uri", ""))
            case "prompts/get":
                return self._prompt(params.get("name", ""), params.get("arguments") or EMPTY)
            case "skills/list" if self.skills:
                return {"skills": list(self.skills.values())}
            case "skills/get" if self.skills:
                return self._skill(params.get("uri", ""))
            case _ if method in self.methods:
                answer = self.methods[method]
                return _content(answer(params) if callable(answer) else answer)
            case _:
                raise FakeError(-32601, f"Method not found: {method}")

    def hello(self) -> dict[str, Any]:
        """Return the name, version and capabilities of the server."""
        changes = {"listChanged": True}
        capabilities: dict[str, Any] = {"tools": changes}
        if self.resources:
            capabilities["resources"] = changes
        if self.prompts:
            capabilities["prompts"] = changes
        if self.extensions:
            capabilities["extensions"] = self.extensions
        info = {"name": self.name, "version": "1.0"}
        hello: dict[str, Any] = {
            "capabilities": capabilities,
            "serverInfo": info,
            "_meta": {"io.modelcontextprotocol/serverInfo": info},
        }
        return hello if self.instructions is None else {**hello, "instructions": self.instructions}

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if name not in self.tools:
            raise FakeError(-32602, f"Unknown tool: {name}")
        if name in self._answers:
            answer = self._answers[name]
            return _content(answer(arguments) if callable(answer) else answer)
        try:
            return _sent(await self._functions.call(name, arguments))
        except MooringError as problem:
            return {**_content(str(problem)), "isError": True}

    def _read(self, uri: str) -> dict[str, Any]:
        if uri not in self.resources:
            raise FakeError(-32002, f"Resource not found: {uri}")
        found = self.resources[uri]
        return {"contents": [_without(found, "name")]}

    def skill(self, name: str, text: str, description: str, files: Mapping[str, str]) -> str:
        root = f"skill://{name}"
        head = f"---\nname: {name}\ndescription: {description}\n---\n\n"
        manifest: list[dict[str, Any]] = []
        for path, content in {"SKILL.md": head + text, **files}.items():
            uri, data = f"{root}/{path}", content.encode()
            self.resources[uri] = {"uri": uri, "name": path, "mimeType": "text/markdown", "text": content}
            self.unlisted |= {uri}
            digest = f"sha256:{sha256(data).hexdigest()}"
            manifest.append({"uri": uri, "digest": digest, "size": len(data)})
        frontmatter = {"name": name, "description": description}
        uri = f"{root}/SKILL.md"
        self.skills[uri] = {"uri": uri, "frontmatter": frontmatter, "resources": manifest}
        self.extensions.setdefault("io.modelcontextprotocol/skills", {})
        return uri

    def _skill(self, uri: str) -> dict[str, Any]:
        if uri not in self.skills:
            raise FakeError(-32602, f"Unknown skill: {uri}")
        return {"skill": self.skills[uri]}

    def _prompt(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if name not in self.prompts:
            raise FakeError(-32602, f"Unknown prompt: {name}")
        text = self.prompts[name][1](**arguments)
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def _sent(result: Result) -> dict[str, Any]:
    sent: dict[str, Any] = {"content": result.content, "isError": result.is_error}
    return sent if result.structured is None else {**sent, "structuredContent": result.structured}


def _content(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Mapping):
        return dict(cast("Mapping[str, Any]", answer))
    return {"content": [{"type": "text", "text": str(answer)}]}


def _without(entry: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in keys}
