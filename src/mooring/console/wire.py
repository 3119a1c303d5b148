"""Messages between the host and its servers: shown in the console, and kept for test recordings."""

from __future__ import annotations

import json
import time
from collections import OrderedDict, deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, cast

from mooring.console.access import Visitor
from mooring.console.journal import Journal
from mooring.console.state import LIMITS, ConsoleState
from mooring.console.verbs import Body
from mooring.console.web import Verb, VerbRefused
from mooring.core.callers import CALL
from mooring.core.json_values import heavy
from mooring.core.redact import MASK, Redactor, is_secret_name
from mooring.core.text import clean_line, dumps, line
from mooring.testing.recording import HANDSHAKE_METHODS, recorded
from mooring.transport import base

__all__ = ["Wire"]

PENDING = 400
"""Messages that wait to be shown. Others are dropped while more arrive, and counted."""
PER_UPDATE = 100
"""Messages that are made into rows at once."""
BUDGET = 0.02
"""Seconds of one update; what is left waits for the next one."""
PREVIEW = 200
LARGEST = 256 * 1024
"""Bytes of a message that is shown whole."""
KEPT_BYTES = 16 * 2**20
"""Messages that are kept whole, together."""
MOST_OPEN = 4_096
"""Requests without an answer whose time is kept."""
MOST_CALLS = 1_000
LARGEST_CALL = 2 * 2**20
"""Bytes of the messages of one call that are kept for recordings."""
CALL_BYTES = 32 * 2**20
"""Exchanges of calls that are kept for recordings, together."""
MOST_LISTS = 2_000
EXPORT_BYTES = 32 * 2**20


class _Seen(NamedTuple):
    time: float
    passing: base.Passing


class Wire:
    """Follows the messages of all servers of this process.

    Enter `following` before the host starts: a recording needs the first messages of a server.
    """

    def __init__(self) -> None:
        self._state: ConsoleState | None = None
        self._redact = Redactor()
        self._pending: deque[_Seen] = deque(maxlen=PENDING)
        self._messages: OrderedDict[str, str] = OrderedDict()
        self._size = self._count = self._seen = self._shown = 0
        self._open: OrderedDict[tuple[str, Any], tuple[float, str]] = OrderedDict()
        self._lists: OrderedDict[tuple[str, str, str], base.TracedExchange] = OrderedDict()
        self._calls: OrderedDict[int, list[base.TracedExchange]] = OrderedDict()
        self._sizes: dict[int, int] = {}
        self._call_size = 0
        self._too_large: deque[int] = deque(maxlen=100)
        self.on = True

    def use(self, state: ConsoleState, redact: Redactor) -> None:
        """Show the messages in this state."""
        self._state, self._redact = state, redact

    def verbs(self) -> dict[str, Verb]:
        """Return the verbs by name."""
        return {
            "wire": self.message,
            "capture": self.capture,
            "exchange": self.exchange,
            "export": self.export,
        }

    @contextmanager
    def following(self) -> Generator[None]:
        """Follow the messages during the block."""
        base.taps.append(self._tap)
        base.listeners.append(self._listen)
        try:
            yield
        finally:
            base.taps.remove(self._tap)
            base.listeners.remove(self._listen)

    # --- messages -------------------------------------------------------------------------------

    def _tap(self, passing: base.Passing) -> None:
        self._seen += 1
        if self.on:
            self._pending.append(_Seen(time.time(), passing))

    def update(self) -> None:
        """Show messages that arrived, for at most `BUDGET` seconds: the last ones, if there are too many."""
        if self._state is None:
            return
        journal = self._state.journal
        while len(self._pending) > PER_UPDATE:
            self._measure(self._pending.popleft())
        until = time.monotonic() + BUDGET
        while self._pending and time.monotonic() < until:
            self._show(self._pending.popleft(), journal)
        journal.set("wire", {"on": self.on, "messages": self._seen, "dropped": self._seen - self._shown})

    def _show(self, seen: _Seen, journal: Journal) -> None:
        self._count += 1
        self._shown += 1
        at, (server, way, said) = seen
        key = f"w{self._count}"
        kind, method, number, ms = self._measure(seen)
        text = self._text(said)
        row = {
            "id": key,
            "time": round(at, 3),
            "server": server,
            "way": way,
            "kind": kind,
            "method": None if method is None else line(method, 80),
            "message_id": number,
            "size": len(text.encode("utf-8", "replace")),
            "ms": ms,
            "preview": clean_line(text[: PREVIEW * 2])[:PREVIEW],
        }
        self._keep(key, text)
        journal.put("wire", row)

    def _measure(self, seen: _Seen) -> tuple[str, str | None, str | None, float | None]:
        """Return the kind, method, id and latency of a message."""
        at, (server, way, said) = seen
        if isinstance(said, str):
            return ("error" if way == "fault" else "line"), None, None, None
        method, number = said.get("method"), said.get("id")
        name = None if number is None else line(str(number), 80)
        if isinstance(method, str):
            if number is not None and way == "sent":
                self._open[server, name] = (at, method)
                if len(self._open) > MOST_OPEN:
                    self._open.popitem(last=False)
            return ("notification" if number is None else "request"), method, name, None
        asked = self._open.pop((server, name), None) if way == "received" else None
        ms = None if asked is None else round((at - asked[0]) * 1000, 1)
        return ("error" if "error" in said else "response"), (asked and asked[1]), name, ms

    def _text(self, said: Mapping[str, Any] | str) -> str:
        if isinstance(said, str):
            return self._redact(said)[:LARGEST]
        if heavy(said):
            return json.dumps({"note": "This message is too large to be shown."})
        text = self._redact(dumps(hide_secrets(said)))
        return text if len(text) <= LARGEST else f"{text[:LARGEST]}…"

    def _keep(self, key: str, text: str) -> None:
        self._messages[key] = text
        self._size += len(text)
        while len(self._messages) > LIMITS["wire"] or self._size > KEPT_BYTES:
            self._size -= len(self._messages.popitem(last=False)[1])

    async def message(self, given: Mapping[str, Any], _: Visitor) -> Any:
        key = Body(given).text("id")
        text = self._messages.get(key)
        if text is None:
            raise VerbRefused(404, f"Message {key[:40]!r} is not kept any more.", kind="Gone")
        return {"id": key, "message": text}

    async def capture(self, given: Mapping[str, Any], _: Visitor) -> Any:
        self.on = Body(given).flag("on")
        self._pending.clear()
        self.update()
        return {"on": self.on}

    # --- recordings -----------------------------------------------------------------------------

    def _listen(self, exchange: base.TracedExchange) -> None:
        if exchange.method in HANDSHAKE_METHODS or exchange.method.endswith("/list"):
            self._keep_list(exchange)
        elif number := CALL.get():
            self._keep_call(number, exchange)

    def _keep_list(self, exchange: base.TracedExchange) -> None:
        server, method = exchange.server, exchange.method
        cursor = str(exchange.params.get("cursor", ""))
        if not cursor:
            for key in [key for key in self._lists if key[:2] == (server, method)]:
                del self._lists[key]
        self._lists[server, method, cursor] = exchange
        if len(self._lists) > MOST_LISTS:
            self._lists.popitem(last=False)

    def _keep_call(self, number: int, exchange: base.TracedExchange) -> None:
        size = weight((exchange.params, exchange.result, exchange.error), LARGEST_CALL)
        if size >= LARGEST_CALL or number in self._too_large:
            self._drop_call(number)
            self._too_large.append(number)
            return
        self._calls.setdefault(number, []).append(exchange)
        self._sizes[number] = self._sizes.get(number, 0) + size
        self._call_size += size
        if self._state is not None:
            self._state.mark_recorded(number, True)
        while len(self._calls) > MOST_CALLS or self._call_size > CALL_BYTES:
            self._drop_call(next(iter(self._calls)))

    def _drop_call(self, number: int) -> None:
        if self._calls.pop(number, None) is not None:
            self._call_size -= self._sizes.pop(number)
            if self._state is not None:
                self._state.mark_recorded(number, False)

    async def exchange(self, given: Mapping[str, Any], _: Visitor) -> Any:
        key = Body(given).text("call")
        found = self._calls.get(_number(key))
        if found is None:
            raise VerbRefused(404, f"The messages of call {key[:40]!r} are not kept any more.", kind="Gone")
        return {"id": key, "requests": [json.loads(self._line(one)) for one in found]}

    async def export(self, given: Mapping[str, Any], _: Visitor) -> Any:
        wanted = given.get("calls")
        if wanted == "all":
            numbers = list(self._calls)
        else:
            numbers = [_number(one) for one in Body(given).texts("calls", most=MOST_CALLS)]
        if not numbers:
            raise VerbRefused(409, "There is no call to export. Make a call first.")
        if lost := [number for number in numbers if number not in self._calls]:
            raise VerbRefused(
                404,
                f"The messages of call 'c{lost[0]}' are not kept any more; export newer calls.",
                kind="Gone",
            )
        servers = list(dict.fromkeys(one.server for number in numbers for one in self._calls[number]))
        known = {key[0] for key in self._lists if key[1] in HANDSHAKE_METHODS}
        if missing := [server for server in servers if server not in known]:
            raise VerbRefused(
                409, f"The start of server {missing[0]!r} was not recorded. Reconnect it and call it again."
            )
        lines = [self._line(one) for key, one in self._lists.items() if key[0] in servers]
        lines += [self._line(one) for number in sorted(numbers) for one in self._calls[number]]
        text = "".join(f"{one}\n" for one in lines)
        if len(text) > EXPORT_BYTES:
            raise VerbRefused(
                413, f"The recording has more than {EXPORT_BYTES >> 20} MiB. Export fewer calls."
            )
        return {"name": "recording.jsonl", "recording": text, "calls": len(numbers), "servers": servers}

    def _line(self, exchange: base.TracedExchange) -> str:
        return self._redact(recorded(exchange))


def weight(value: Any, most: int) -> int:
    """Return about how many bytes a JSON value takes, counted up to `most`."""
    total, waiting = 0, [value]
    while waiting and total < most:
        one: Any = waiting.pop()
        total += 50 + len(one) if isinstance(one, str) else 50
        if isinstance(one, Mapping):
            pairs = cast("Mapping[str, Any]", one)
            total += sum(map(len, map(str, pairs)))
            waiting.extend(pairs.values())
        elif isinstance(one, list | tuple):
            waiting.extend(cast("list[Any]", one))
    return total


def hide_secrets(value: Any, name: str = "") -> Any:
    """Return a JSON value with `***` for texts under names such as `password`."""
    match value:
        case Mapping():
            pairs = cast("Mapping[str, Any]", value).items()
            return {key: hide_secrets(item, str(key)) for key, item in pairs}
        case list() | tuple():
            return [hide_secrets(item, name) for item in cast("list[Any]", value)]
        case str() if name and value and name not in _NO_SECRETS and _is_secret(name):
            return MASK
        case _:
            return value


_NO_SECRETS = frozenset(("progressToken",))
_short_name = lru_cache(4_096)(is_secret_name)


def _is_secret(name: str) -> bool:
    """Like `is_secret_name`; remembers short names."""
    return _short_name(name) if len(name) <= 64 else is_secret_name(name)


def _number(key: str) -> int:
    return int(key[1:]) if key[:1] == "c" and key[1:].isascii() and key[1:].isdigit() else -1
