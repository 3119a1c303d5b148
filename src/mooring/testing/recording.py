"""Record the traffic of servers to a file, and replay it without them."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from mooring.config import GetSecret, default_lookup, resolve
from mooring.config.models import HostConfig, ServerConfig, Style
from mooring.core.types import EMPTY, Result
from mooring.errors import ConfigError
from mooring.lock.definitions import canonical
from mooring.testing.script import Era, FakeError, Script
from mooring.testing.server import FakeServer, Transports
from mooring.transport import base

if TYPE_CHECKING:
    from mooring.policy import Approver

HIDDEN = "***"
SECRET_NAMES = ("authorization", "password", "passwd", "secret", "token", "api_key", "apikey", "cookie")
HANDSHAKE_METHODS = ("initialize", "server/discover")


class Recorder:
    """Records the requests of all hosts of this process, and the responses, to a file.

        with Recorder("recording.jsonl", host.config): ...

    One JSON object per line, without HTTP headers. The secrets that `config` refers to, those in `secrets`,
    and values under names such as `password` are replaced by `***`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: HostConfig | None = None,
        *,
        get_secret: GetSecret | None = None,
        secrets: Iterable[str] = (),
    ) -> None:
        self._path = Path(path)
        servers = config.servers if config is not None else ()
        values = {*secrets, *(value for server in servers for value in _secrets(server, get_secret))}
        self._secrets = sorted(filter(None, values), key=len, reverse=True)

    def __enter__(self) -> Self:
        self._path.write_text("", encoding="utf-8")
        base.listeners.append(self._keep)
        return self

    def __exit__(self, *_: object) -> None:
        base.listeners.remove(self._keep)

    def _keep(self, exchange: base.TracedExchange) -> None:
        text = recorded(exchange)
        for secret in self._secrets:
            text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], HIDDEN)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def recorded(exchange: base.TracedExchange) -> str:
    """Return an exchange as a line of a recording, with values under names such as `password` replaced."""
    entry: dict[str, Any] = {
        "server": exchange.server,
        "method": exchange.method,
        "params": {name: value for name, value in exchange.params.items() if name != "_meta"},
    }
    entry |= {"result": exchange.result} if exchange.error is None else {"error": exchange.error}
    return json.dumps(_masked(entry), ensure_ascii=False)


class Replay:
    """The servers of a recording: each gives the recorded responses in the same order.

        async with Replay("recording.jsonl") as replay:
            async with Host(replay.servers) as host: ...

    Use `with` in synchronous code. A call that was not recorded returns an error result.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        entries = [_entry(line, number, path) for number, line in enumerate(_lines(path), 1)]
        names = dict.fromkeys(str(entry["server"]) for entry in entries)
        self._fakes = [
            _ReplayServer([entry for entry in entries if entry["server"] == name]) for name in names
        ]
        self._async = AsyncExitStack()
        self._sync = ExitStack()

    @property
    def servers(self) -> tuple[ServerConfig, ...]:
        """The server configurations, under the recorded names."""
        return tuple(fake.http() for fake in self._fakes)

    async def __aenter__(self) -> Self:
        for fake in self._fakes:
            await self._async.enter_async_context(fake)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._async.aclose()

    def __enter__(self) -> Self:
        for fake in self._fakes:
            self._sync.enter_context(fake)
        return self

    def __exit__(self, *_: object) -> None:
        self._sync.close()


async def replay_script(
    recording: str | os.PathLike[str],
    code: str,
    *,
    approve: bool | Approver = True,
    timeout: float = 60.0,
    style: Style = "mcp",
) -> Result:
    """Run a script against a recording instead of the servers; see `Session.run_script`.

    Args:
        recording: The file of a `Recorder`.
        code: The program.
        approve: Whether the plan of its writes is approved, or a function that is asked.
        timeout: Seconds for the program and its calls. Default: 60.
        style: How tools are named. Default: `mcp`.
    """
    from mooring.host import Host

    answer: Approver = approve if callable(approve) else lambda _: approve is True
    async with (
        Replay(recording) as replay,
        Host(replay.servers, on_approval=answer, style=style, lock=False, home=None) as host,
    ):
        await host.ready()
        return await host.session().run_script(code, timeout)


class _RecordedScript(Script):
    """A script with recorded responses."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        name = str(entries[0]["server"])
        handshake: Mapping[str, Any] = next(
            (entry["result"] for entry in entries if entry["method"] in HANDSHAKE_METHODS), EMPTY
        )
        era: Era = "modern" if "supportedVersions" in handshake else "handshake"
        super().__init__(name, era, None)
        self._handshake = handshake
        self._responses: dict[str, deque[Mapping[str, Any]]] = {}
        for entry in entries:
            if entry["method"] not in HANDSHAKE_METHODS:
                self._responses.setdefault(_key(entry["method"], entry["params"]), deque()).append(entry)

    async def result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if method in HANDSHAKE_METHODS:
            if (method == "server/discover") != (self.era == "modern"):
                raise FakeError(-32601, f"Method not found: {method}")
            return dict(self._handshake)
        if method == "ping":
            return {}
        plain = {name: value for name, value in params.items() if name != "_meta"}
        responses = self._responses.get(_key(method, plain))
        if not responses:
            if method != "tools/call":
                raise FakeError(-32601, f"{method} was not recorded")
            text = f"this call of {params.get('name')!r} was not recorded; record again"
            return {"content": [{"type": "text", "text": text}], "isError": True}
        # The last response is used for all further requests.
        entry = responses.popleft() if len(responses) > 1 else responses[0]
        if (error := entry.get("error")) is not None:
            raise FakeError(error["code"], error["message"])
        return dict(entry["result"])


class _ReplayServer(FakeServer):
    """A server that replays a recording."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        script = _RecordedScript(entries)
        super().__init__(script.name)
        self._script, self._transports = script, Transports(script)


def _key(method: str, params: Mapping[str, Any]) -> str:
    return canonical([method, _masked(dict(params))])


def _secrets(server: ServerConfig, get_secret: GetSecret | None) -> tuple[str, ...]:
    with suppress(ConfigError):  # a server without its secrets cannot be connected
        return resolve(server, default_lookup(os.environ, get_secret, source=server.source)).secrets
    return ()


def _masked(value: Any) -> Any:
    """Replace values under the names of secrets."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {name: HIDDEN if _is_secret(name, item) else _masked(item) for name, item in pairs}
    if isinstance(value, list | tuple):
        return [_masked(item) for item in cast("Sequence[Any]", value)]
    return value


def _is_secret(name: str, value: Any) -> bool:
    return isinstance(value, str) and any(word in name.lower().replace("-", "_") for word in SECRET_NAMES)


def _lines(path: str | os.PathLike[str]) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"the recording cannot be read: {problem}", file=str(path)) from None


def _entry(line: str, number: int, path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        entry = json.loads(line)
        if isinstance(entry, dict) and {"server", "method", "params"} <= cast("dict[str, Any]", entry).keys():
            return cast("dict[str, Any]", entry)
    except ValueError:
        pass
    raise ConfigError("is not a recorded exchange; record again", file=str(path), place=f"line {number}")
