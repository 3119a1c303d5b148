"""The protocol between a host and a page of a tool (MCP Apps): answers to the messages of the page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from mooring import __version__
from mooring.config.logs import logger
from mooring.core.apps import own_name, readdressed, readdressed_result
from mooring.core.extensions import ORIGIN
from mooring.core.json_values import heavy
from mooring.core.text import line, nearest
from mooring.core.types import EMPTY, Json, Result, Tool
from mooring.errors import MooringError, UnknownTool

if TYPE_CHECKING:
    from mooring.extensions.views import CallTool, View, Views

__all__ = ["ViewBridge"]

log = logger("mooring.views")

PROTOCOL = "2026-01-26"
"""Version of the protocol between a host and a page."""
MOST_WAITING = 64
"""Requests of one page that are answered at the same time, and messages that wait for the page."""
TEARDOWN_TIMEOUT = 2.0
"""Seconds that a page gets to save its state before it is removed."""
_DENIED, _INVALID, _UNKNOWN, _INTERNAL = -32000, -32602, -32601, -32603


class _Refused(Exception):
    """The answer to a request of the page is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ViewBridge:
    """Speaks the protocol of one page that is shown.

    Give each message of the page to `receive`. The bridge calls tools of the page's own server and no
    others, and sends nothing to the page before it is initialized.
    """

    def __init__(
        self,
        view: View,
        views: Views,
        call: CallTool,
        send: Callable[[dict[str, Any]], Awaitable[None] | None],
        handlers: Mapping[str, Callable[..., Any] | None],
        context: Mapping[str, Json],
    ) -> None:
        self.view = view
        self._views, self._call, self._send, self._on = views, call, send, handlers
        self._context: dict[str, Any] = dict(context)
        self.initialized = False
        """Whether the page has started."""
        self.model_context: Mapping[str, Any] | None = None
        """Content that the page last supplied for the next turn of the model."""
        self._queued: list[dict[str, Any]] = []
        self._input_sent = False
        self._requests = 0
        self._asked: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._greeted = False
        self._under_way: dict[int | str, asyncio.Task[None] | None] = {}
        """Requests of the page that have no answer yet; calls of tools with their task."""

    # --- host to page ---------------------------------------------------------------------------

    async def tool_input(self, arguments: Mapping[str, Any], *, partial: bool = False) -> None:
        """Send the arguments of the call that the page shows: `partial` ones while the model still writes
        them, then the complete ones once.

        Raises:
            RuntimeError: The complete arguments were sent before.
        """
        if self._input_sent:
            raise RuntimeError("the arguments of this call were sent before")
        self._input_sent = not partial
        name = "tool-input-partial" if partial else "tool-input"
        await self._notify(f"ui/notifications/{name}", {"arguments": dict(arguments)})

    async def tool_result(self, result: Result) -> None:
        """Send the result of the call that the page shows.

        Raises:
            RuntimeError: The arguments were not sent before.
        """
        if not self._input_sent:
            raise RuntimeError("send the arguments with `tool_input` before the result")
        await self._notify("ui/notifications/tool-result", self._result(result))

    async def tool_cancelled(self, reason: str = "") -> None:
        """Notify the page that the call was cancelled."""
        await self._notify("ui/notifications/tool-cancelled", {"reason": reason})

    async def context_changed(self, **fields: Json) -> None:
        """Notify the page of changed fields of the host context, such as `theme`."""
        self._context |= fields
        await self._notify("ui/notifications/host-context-changed", dict(fields))

    async def teardown(self, reason: str = "", timeout: float = TEARDOWN_TIMEOUT) -> bool:
        """Ask the page to save its state before it is removed; then cancel its calls that still run.

        Args:
            reason: For the page.
            timeout: Seconds to wait for its answer.

        Returns:
            Whether it answered in time.
        """
        try:
            return await self._ask_to_end(reason, timeout) if self.initialized else False
        finally:
            for task in [task for task in self._under_way.values() if task is not None]:
                task.cancel()

    async def _ask_to_end(self, reason: str, timeout: float) -> bool:
        self._requests += 1
        key, answer = self._requests, asyncio.get_running_loop().create_future()
        self._asked[key] = answer
        try:
            async with asyncio.timeout(timeout):
                await self._deliver(
                    {"id": key, "method": "ui/resource-teardown", "params": {"reason": reason}}
                )
                await answer
            return True
        except TimeoutError:
            return False
        finally:
            del self._asked[key]

    async def _notify(self, method: str, params: dict[str, Any]) -> None:
        message = {"method": method, "params": params}
        if self.initialized:
            await self._deliver(message)
        elif len(self._queued) < MOST_WAITING:
            self._queued.append(message)

    async def _deliver(self, message: dict[str, Any]) -> None:
        sent = self._send({"jsonrpc": "2.0", **message})
        if isawaitable(sent):
            await sent

    # --- page to host ---------------------------------------------------------------------------

    async def receive(self, message: object) -> None:
        """Handle one message of the page. A malformed one is logged and ignored.

        A call of a tool is answered when it ends; this method does not wait for it.
        """
        fields = _mapping(message)
        method, key = fields.get("method"), fields.get("id")
        if fields.get("jsonrpc") != "2.0" or heavy(message):
            self._ignore("it is malformed or too large")
        elif not isinstance(method, str):
            self._answered(fields)
        elif "id" not in fields:
            await self._noticed(method, _mapping(fields.get("params")))
        elif isinstance(key, bool) or not isinstance(key, int | str):
            self._ignore("its 'id' is neither a number nor a text")
        elif key in self._under_way:
            self._ignore("a request with the same 'id' has no answer yet")
        else:
            log.debug("request of a page: page=%s method=%s", line(self.view.uri, 200), line(method, 80))
            await self._start(key, method, _mapping(fields.get("params")))

    def _ignore(self, problem: str) -> None:
        log.warning("message of a page ignored, %s: page=%s", problem, line(self.view.uri, 200))

    def _answered(self, fields: Mapping[str, Any]) -> None:
        """Handle the answer of the page to a request of the bridge."""
        key = fields.get("id")
        waiter = self._asked.get(key) if type(key) is int else None
        if waiter is None or ("result" in fields) == ("error" in fields):
            self._ignore("it has no method and is no answer to a request")
        elif not waiter.done():
            waiter.set_result(_mapping(fields.get("result")))

    async def _start(self, key: int | str, method: str, params: Mapping[str, Any]) -> None:
        """Answer a request: a call of a tool in a task of its own, others at once."""
        if len(self._under_way) >= MOST_WAITING:
            problem = "too many requests are under way; wait for their answers"
            await self._deliver({"id": key, "error": {"code": _DENIED, "message": problem}})
        elif method == "tools/call":
            task = asyncio.create_task(self._respond_later(key, method, params))
            self._under_way[key] = task
            task.add_done_callback(lambda ended: self._forget(key, ended))
        else:
            self._under_way[key] = None
            try:
                await self._respond(key, method, params)
            finally:
                del self._under_way[key]

    async def _respond_later(self, key: int | str, method: str, params: Mapping[str, Any]) -> None:
        try:
            await self._respond(key, method, params)
        except Exception:
            log.exception("an answer was not delivered to a page: page=%s", line(self.view.uri, 200))
        finally:
            self._forget(key, asyncio.current_task())

    def _forget(self, key: int | str, ended: asyncio.Task[None] | None) -> None:
        """Release the id of a call that has ended. A task that was cancelled early has not run."""
        if self._under_way.get(key) is ended:
            self._under_way.pop(key, None)

    async def _respond(self, key: int | str, method: str, params: Mapping[str, Any]) -> None:
        try:
            result = await self._guarded(method, params)
        except _Refused as refused:
            await self._deliver({"id": key, "error": {"code": refused.code, "message": str(refused)}})
        else:
            await self._deliver({"id": key, "result": result})

    async def _guarded(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return await self._answer(method, params)
        except MooringError as problem:
            raise _Refused(_DENIED, str(problem)) from None
        except _Refused:
            raise
        except Exception:
            log.exception(
                "callback for a page failed: page=%s method=%s", line(self.view.uri, 200), line(method, 80)
            )
            raise _Refused(_INTERNAL, "the host failed to handle this request") from None

    async def _noticed(self, method: str, params: Mapping[str, Any]) -> None:
        match method:
            case "ui/notifications/initialized":
                if not self.initialized:
                    self.initialized = True
                    queued, self._queued = self._queued, []
                    for message in queued:
                        await self._deliver(message)
            case "ui/notifications/sandbox-proxy-ready":
                rules = self.view.rules
                more = (
                    {"csp": {key: list(value) for key, value in rules.domains.items()}}
                    if rules.domains
                    else {}
                )
                params = {"html": self.view.html, "sandbox": "allow-scripts allow-same-origin", **more}
                await self._deliver({"method": "ui/notifications/sandbox-resource-ready", "params": params})
            case "ui/notifications/size-changed":
                await self._report("size", _number(params.get("width")), _number(params.get("height")))
            case "ui/notifications/request-teardown":
                await self._report("close")
            case "notifications/message":
                text = line(str(params.get("data")), 500)
                log.info(
                    "log of a page: page=%s level=%s %s", line(self.view.uri, 200), params.get("level"), text
                )
            case _:
                log.debug("notification of a page ignored: method=%s", line(method, 80))

    async def _answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        match method:
            case "ui/initialize":
                self._greeted = True
                return self._hello()
            case "ping":
                return {}
            case "tools/call":
                return await self._tool_call(params)
            case "tools/list":
                tools = self._views.tools(self.view)
                return {"tools": [self._definition(name, tool) for name, tool in tools.items()]}
            case "resources/read":
                contents = await self._views.read(self.view, _text(params, "uri"))
                return {"contents": [self._contents(block.raw["resource"]) for block in contents.blocks]}
            case "ui/open-link":
                url = _text(params, "url")
                if not _is_web_address(url):
                    raise _Refused(_DENIED, "only valid http and https addresses can be opened")
                await self._permitted("openLinks", url)
                return {}
            case "ui/message":
                if params.get("role", "user") != "user":
                    raise _Refused(_INVALID, "the 'role' of a message must be 'user'")
                await self._permitted("message", _blocks(params.get("content")))
                return {}
            case "ui/update-model-context":
                given = {key: params[key] for key in ("content", "structuredContent") if key in params}
                if "content" in given:
                    given["content"] = _blocks(given["content"])
                await self._permitted("updateModelContext", given)
                self.model_context = given
                return {}
            case "ui/request-display-mode":
                return {"mode": self._context.get("displayMode", "inline")}
            case _:
                raise _Refused(_UNKNOWN, f"unknown method {line(method, 80)!r}")

    def _hello(self) -> dict[str, Any]:
        tool = {"toolInfo": {"tool": self._definition(own_name(self.view.tool)[1], self.view.tool)}}
        able: dict[str, Any] = {
            name: {} for name in ("openLinks", "message", "updateModelContext") if self._on[name] is not None
        }
        return {
            "protocolVersion": PROTOCOL,
            "hostInfo": {"name": "mooring", "version": __version__},
            "hostCapabilities": {"serverTools": {}, "serverResources": {}, "logging": {}, **able},
            "hostContext": {
                **tool,
                "displayMode": "inline",
                "availableDisplayModes": ["inline"],
                **self._context,
            },
        }

    async def _tool_call(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool of the page's own server, by the server's own name."""
        if not self._greeted:
            raise _Refused(_DENIED, "send `ui/initialize` before `tools/call`")
        name, given = _text(params, "name"), params.get("arguments")
        known = self._views.tools(self.view)
        tool = known.get(name)
        if tool is None:
            raise UnknownTool(
                line(name, 80), nearest(name, known), hint="Pages call tools of their own server."
            )
        result = await self._call(tool, cast("Mapping[str, Any] | None", given))
        if result.error is not None:
            raise result.error
        return self._result(result)

    async def _permitted(self, name: str, *given: Any) -> None:
        handler = self._on[name]
        if handler is None or await _called(handler, *given) is False:
            raise _Refused(_DENIED, "the host does not allow this")

    async def _report(self, name: str, *given: Any) -> None:
        if (handler := self._on[name]) is not None:
            try:
                await _called(handler, *given)
            except Exception:
                log.exception("callback for a page failed: page=%s", line(self.view.uri, 200))

    # --- the addresses of the page's own server: a gateway before it has changed them ------------

    def _result(self, result: Result) -> dict[str, Any]:
        """Return a result as the server sent it."""
        if result.raw is not None:
            made = {key: value for key, value in result.raw.items() if key != "resultType"}
        else:
            made = {"content": result.content, "isError": result.is_error}
            made |= {} if result.structured is None else {"structuredContent": result.structured}
        return readdressed_result(made, self.view.own_address)

    def _contents(self, resource: Mapping[str, Any]) -> dict[str, Any]:
        uri = resource.get("uri")
        return {**resource, "uri": self.view.own_address(uri)} if isinstance(uri, str) else dict(resource)

    def _definition(self, name: str, tool: Tool) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": name, "inputSchema": dict(tool.input_schema)}
        meta = readdressed(tool.meta, self.view.own_address)
        meta.pop(ORIGIN, None)
        texts = {"title": tool.title, "description": tool.description, "_meta": meta}
        return entry | {key: value for key, value in texts.items() if value}


async def _called(handler: Callable[..., Any], *given: Any) -> Any:
    outcome = handler(*given)
    return await outcome if isawaitable(outcome) else outcome


def _blocks(value: object) -> list[Mapping[str, Any]]:
    """Return content blocks, given as a list or as one block.

    Raises:
        _Refused: it is neither.
    """
    given = cast("list[object]", value) if isinstance(value, list) else [value]
    blocks = [cast("Mapping[str, Any]", one) for one in given if isinstance(one, Mapping)]
    if len(blocks) != len(given) or not all(isinstance(one.get("type"), str) for one in blocks):
        raise _Refused(_INVALID, "'content' must be content blocks")
    return blocks


def _text(params: Mapping[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise _Refused(_INVALID, f"{key!r} must be a text")
    return value


def _is_web_address(url: str) -> bool:
    """Whether programs agree on what this address opens: http or https, a host, nothing invisible."""
    if not url.isprintable() or " " in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else EMPTY
