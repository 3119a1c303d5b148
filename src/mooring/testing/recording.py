"""Real traffic kept in a file, and played again where there is no server."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any, Self, cast

from mooring.config import GetSecret, default_lookup, resolve
from mooring.config.models import HostConfig, ServerConfig
from mooring.core.types import EMPTY
from mooring.errors import ConfigError
from mooring.lock.definitions import canonical
from mooring.testing.script import Era, FakeError, Script
from mooring.testing.server import FakeServer, Wires
from mooring.transport import base

HIDDEN = "***"
SECRET_NAMES = ("authorization", "password", "passwd", "secret", "token", "api_key", "apikey", "cookie")
HELLO = ("initialize", "server/discover")


class Recorder:
    """Writes what every host of this process asks its servers, and what they answer, to a file.

        with Recorder("tape.jsonl", host.config): ...

    One JSON object a line. HTTP headers are not traffic and are never in it; the secrets that `config`
    refers to, what is in `secrets`, and values under names such as `password` are replaced by `***`.
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
        known = {*secrets, *(value for server in servers for value in _secrets(server, get_secret))}
        self._secrets = sorted(filter(None, known), key=len, reverse=True)

    def __enter__(self) -> Self:
        self._path.write_text("", encoding="utf-8")
        base.listeners.append(self._keep)
        return self

    def __exit__(self, *_: object) -> None:
        base.listeners.remove(self._keep)

    def _keep(self, exchange: base.TracedExchange) -> None:
        entry: dict[str, Any] = {
            "server": exchange.server,
            "method": exchange.method,
            "params": {name: value for name, value in exchange.params.items() if name != "_meta"},
        }
        entry |= {"result": exchange.result} if exchange.error is None else {"error": exchange.error}
        text = json.dumps(_masked(entry), ensure_ascii=False)
        for secret in self._secrets:
            text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], HIDDEN)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


class Replay:
    """The servers of a tape: each answers what it answered then, in the same order.

        async with Replay("tape.jsonl") as replay:
            async with Host(replay.servers) as host: ...

    `with` does it for synchronous code. A call that is not on the tape comes back as an error that says so.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        entries = [_entry(line, number, path) for number, line in enumerate(_lines(path), 1)]
        names = dict.fromkeys(str(entry["server"]) for entry in entries)
        self._fakes = [_Player([one for one in entries if one["server"] == name]) for name in names]
        self._async = AsyncExitStack()
        self._sync = ExitStack()

    @property
    def servers(self) -> tuple[ServerConfig, ...]:
        """The configurations that reach them, under the names they had."""
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


class _Tape(Script):
    """A script that knows the answers already."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        name = str(entries[0]["server"])
        said: Mapping[str, Any] = next((one["result"] for one in entries if one["method"] in HELLO), EMPTY)
        era: Era = "modern" if "supportedVersions" in said else "handshake"
        super().__init__(name, era, None)
        self._said = said
        self._kept: dict[str, deque[Mapping[str, Any]]] = {}
        for entry in entries:
            if entry["method"] not in HELLO:
                self._kept.setdefault(_key(entry["method"], entry["params"]), deque()).append(entry)

    async def result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if method in HELLO:
            if (method == "server/discover") != (self.era == "modern"):
                raise FakeError(-32601, f"Method not found: {method}")
            return dict(self._said)
        if method == "ping":
            return {}
        plain = {name: value for name, value in params.items() if name != "_meta"}
        kept = self._kept.get(_key(method, plain))
        if not kept:
            if method != "tools/call":
                raise FakeError(-32601, f"{method} is not on the tape")
            text = f"this call of {params.get('name')!r} is not on the tape; record it again"
            return {"content": [{"type": "text", "text": text}], "isError": True}
        # The last answer stays for whoever asks more often than then.
        entry = kept.popleft() if len(kept) > 1 else kept[0]
        if (error := entry.get("error")) is not None:
            raise FakeError(error["code"], error["message"])
        return dict(entry["result"])


class _Player(FakeServer):
    """A server that follows a tape."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        tape = _Tape(entries)
        super().__init__(tape.name)
        self._script, self._wires = tape, Wires(tape)


def _key(method: str, params: Mapping[str, Any]) -> str:
    return canonical([method, _masked(dict(params))])


def _secrets(server: ServerConfig, get_secret: GetSecret | None) -> tuple[str, ...]:
    with suppress(ConfigError):  # one that cannot be resolved cannot be connected either
        return resolve(server, default_lookup(os.environ, get_secret, source=server.source)).secrets
    return ()


def _masked(value: Any) -> Any:
    """The value without what stands under the name of a secret."""
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
        raise ConfigError(f"the tape cannot be read: {problem}", file=str(path)) from None


def _entry(line: str, number: int, path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        entry = json.loads(line)
        if isinstance(entry, dict) and {"server", "method", "params"} <= cast("dict[str, Any]", entry).keys():
            return cast("dict[str, Any]", entry)
    except ValueError:
        pass
    raise ConfigError("is no exchange; record the tape again", file=str(path), place=f"line {number}")
