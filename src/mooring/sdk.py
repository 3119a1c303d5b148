"""The official SDK's `ClientSession` on a connection of mooring: `async with client_session(host, server)`.

For code that wants an `mcp.ClientSession`. Needs the extra `sdk` (`mcp` 2.1 or newer). No other module of
mooring imports `mcp`, except for the adapter of a framework that brings it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mooring.core.types import Era
from mooring.errors import (
    CallTimeout,
    ConnectError,
    ConnectionLost,
    MooringError,
    NotTrusted,
    PolicyDenied,
    ServerError,
    UnknownPrompt,
    UnknownResource,
    UnknownServer,
    UnknownTool,
)
from mooring.gateway.direct import Dispatcher
from mooring.gateway.protocol import Refusal, refusal
from mooring.host import Host, runtime_of
from mooring.session import Session
from mooring.transport.message import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, REQUEST_TIMEOUT

try:
    import mcp_types as types
    from mcp.client.session import ClientRequestContext, ClientSession
    from mcp.shared.exceptions import MCPError
except ImportError as problem:
    raise ImportError(
        f"mooring.sdk needs the package mcp, version 2.1 or newer ({problem}): pip install 'mooring[sdk]'"
    ) from problem

__all__ = ["client_session"]

_CALLBACKS = ("elicitation_callback", "list_roots_callback", "sampling_callback")
_REFUSED = (UnknownPrompt, UnknownResource, UnknownServer, UnknownTool, PolicyDenied, NotTrusted)
_INPUT: Mapping[str, type[Any]] = {
    "elicitation/create": types.ElicitRequest,
    "roots/list": types.ListRootsRequest,
    "sampling/createMessage": types.CreateMessageRequest,
}


@asynccontextmanager
async def client_session(
    host: Host, server: str, *, session: Session | None = None, **options: Any
) -> AsyncGenerator[ClientSession]:
    """Hand out an official `mcp.ClientSession` on mooring's connection to `server`.

        async with client_session(host, "files") as client:
            await client.list_tools()
            await client.call_tool("read_file", {"path": "a.md"})

    The session is initialized: `initialize()` may be called, and sends nothing. Tools, resources and prompts
    have the server's own names. What is not in the catalog of the host (because of the lock, a policy, or
    `allow` and `deny`) is neither listed nor called. Calls pass the lock, the policy, approvals, limits,
    retries and the audit log as `Host.call` does, but their results are not cut to a budget. Errors are
    raised as `mcp.MCPError`, with the error of mooring as `__cause__`.

    Args:
        host: An entered host.
        server: The name of one of its servers. It is connected if it is not yet.
        session: The host's session whose connection, headers and login are used. Default: the shared one.
        options: Arguments of `mcp.ClientSession`, such as `message_handler` or `read_timeout_seconds`. The
            callbacks for elicitation, sampling and roots need a host that was made with `relay=Relay()`.

    Raises:
        UnknownServer: The host has no such server.
        MooringError: The server cannot be connected.
        ValueError: A callback needs a relay and the host has none.
    """
    runtime = runtime_of(host)
    runtime.check_running()
    if runtime.relay is None and (wanted := [name for name in _CALLBACKS if options.get(name) is not None]):
        raise ValueError(f"{wanted[0]} needs a host that passes questions on: Host(..., relay=Relay())")
    dispatcher = _SdkDispatcher(host, server, session)
    era = (await dispatcher.connect()).era
    kind = types.DiscoverResult if era == "modern" else types.InitializeResult
    greeting = kind.model_validate(_valid(dispatcher.greeting(era)))
    failed: Exception | None = None
    try:
        async with ClientSession(dispatcher=dispatcher, **options) as client:
            dispatcher.client = client
            client.adopt(greeting)
            try:
                yield client
            except Exception as problem:
                failed = problem
                raise
    except BaseExceptionGroup as group:  # the SDK wraps whatever the block raises
        if failed is None or group.exceptions != (failed,):
            raise
        raise failed from None


class _SdkDispatcher(Dispatcher):
    """The same with the errors and the callbacks of the SDK."""

    client: ClientSession | None = None

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the result of one request of the session.

        Raises:
            MCPError: There is none.
        """
        try:
            result = await self.request(method, params, opts or {})
        except Refusal as refused:
            raise MCPError(refused.code, str(refused), refused.data) from None
        except MooringError as problem:
            raise _as_mcp_error(problem, self.era) from problem
        return _valid(result) if method in ("initialize", "server/discover") else result

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a question of the server with the session's callbacks."""
        if self.client is None or self.era == "legacy" or method not in _INPUT:
            return await super().ask(method, params)
        # The 2026 era has no requests of servers: it is a question within a result.
        request = _INPUT[method].model_validate({"method": method, "params": dict(params)})
        key = self.context().request_id or ""
        answer = await self.client.dispatch_input_request(
            ClientRequestContext(session=self.client, request_id=key), request
        )
        if isinstance(answer, types.ErrorData):
            raise MCPError(answer.code, answer.message, answer.data)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


def _valid(greeting: dict[str, Any]) -> dict[str, Any]:
    """What a server says of itself, without capabilities that the SDK would refuse."""
    able = {key: value for key, value in greeting["capabilities"].items() if _is_valid(key, value)}
    return {**greeting, "capabilities": able}


def _is_valid(capability: str, value: object) -> bool:
    try:
        types.ServerCapabilities.model_validate({capability: value})
    except ValueError:
        return False
    return True


def _as_mcp_error(problem: MooringError, era: Era) -> MCPError:
    """The error of mooring as the SDK's session raises it."""
    if isinstance(problem, ServerError):
        said = refusal(problem, era)
        return MCPError(said.code, str(said), said.data)
    if isinstance(problem, CallTimeout):
        return MCPError(REQUEST_TIMEOUT, str(problem))
    if isinstance(problem, ConnectionLost | ConnectError):
        return MCPError(CONNECTION_CLOSED, f"Connection closed: {problem}")
    return MCPError(INVALID_PARAMS if isinstance(problem, _REFUSED) else INTERNAL_ERROR, str(problem))
