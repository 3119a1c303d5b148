"""Messages as servers send them, damaged at random but reproducibly."""

from __future__ import annotations

import json
import random

_VALUES = (
    b"null", b"true", b"0", b"-1", b"1e999", b"NaN", b"9" * 30, b"9" * 400, b'""', b'"x"', b"[]", b"{}",
    b"[[[[[[]]]]]]", b'"\\ud800"', b'"\\u0000"', b"{\"a\":" * 300, b"1.5", b'"@ID@"', b"@ID@",
)  # fmt: skip
_MARKS = b'{}[]:,"\\\n\r\0\xff\xc3 \t'

MESSAGES: tuple[bytes, ...] = tuple(
    json.dumps({"jsonrpc": "2.0", **message}).replace('"ID"', "@ID@").encode()
    for message in (
        {"id": "ID", "result": {"content": [{"type": "text", "text": "fine"}], "isError": False}},
        {"id": "ID", "result": {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}},
        {"id": "ID", "result": {"content": [], "structuredContent": {"a": [1, 2, {"b": None}]}}},
        {
            "id": "ID",
            "result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}], "nextCursor": "c"},
        },
        {"id": "ID", "error": {"code": -32602, "message": "no", "data": {"supported": ["2026-07-28"]}}},
        {"id": 3, "result": {}},
        {"id": "s-1", "method": "ping"},
        {"id": 77, "method": "sampling/createMessage", "params": {"messages": []}},
        {"method": "notifications/progress", "params": {"progressToken": "ID", "progress": 1, "total": 2}},
        {"method": "notifications/tools/list_changed", "params": {"_meta": {"a/b": 1}}},
        {"method": "notifications/cancelled", "params": {"requestId": 77, "reason": "r"}},
        {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": {}}},
        {"method": "notifications/message", "params": {"level": "info", "data": "x"}},
    )
)


def mutated(chance: random.Random, message: bytes | None = None) -> bytes:
    """`message`, or one at random, after one to four accidents."""
    data = bytearray(message if message is not None else chance.choice(MESSAGES))
    for _ in range(chance.randint(1, 4)):
        at, to = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
        accident = chance.randrange(7)
        if accident == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif accident == 1:
            data[at:at] = bytes([chance.choice(_MARKS)])
        elif accident == 2:
            del data[at : min(to, at + 20)]
        elif accident == 3:
            data[at:at] = data[at:to]
        elif accident == 4:
            data[at : min(to, at + 12)] = chance.choice(_VALUES)
        elif accident == 5:
            del data[max(at, 1) :]
        else:  # a value of another kind where one stood
            colon = data.find(b":", at)
            if colon >= 0:
                end = min(
                    (n for n in (data.find(mark, colon) for mark in b",}]") if n > 0), default=colon + 1
                )
                data[colon + 1 : end] = chance.choice(_VALUES)
    return bytes(data)
