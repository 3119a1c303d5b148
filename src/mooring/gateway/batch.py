"""Several messages in one body, as clients of 2025-03-26 may send them: each is answered by itself, and the
answers go back together. No other revision has batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mooring.core.types import EMPTY
from mooring.gateway.client import Client
from mooring.gateway.protocol import INVALID_REQUEST, Refusal, error_body, fields, is_id

__all__ = ["Plain", "answered"]

VERSION = "2025-03-26"
MOST = 32
"""Messages of one batch: it counts as one request among those that a client may have under way."""

Answer = Callable[[dict[str, Any]], Awaitable[bytes | None]]
"""Takes one message that is a request; its answer, or None where the client no longer wants one."""


class Plain:
    """An exchange in which nothing can be said before the answer."""

    streams = False
    headers: Mapping[str, str] = EMPTY

    def send(self, body: bytes) -> None:
        """Lost: there is nowhere to say it."""


async def answered(client: Client, messages: list[object], answer: Answer) -> bytes | None:
    """The answers to all requests of a batch as one body; None where there is no request in it.

    Raises:
        Refusal: this is no batch that this client may send.
    """
    if client.protocol != VERSION:
        raise Refusal(INVALID_REQUEST, f"only clients of {VERSION} send several messages at once")
    if not 0 < len(messages) <= MOST:
        raise Refusal(INVALID_REQUEST, f"a batch holds 1 to {MOST} messages")
    parts = await asyncio.gather(*(_one(client, message, answer) for message in messages))
    bodies = [part for part in parts if part is not None]
    return b"[" + b",".join(bodies) + b"]" if bodies else None


async def _one(client: Client, message: object, answer: Answer) -> bytes | None:
    said = fields(message)
    key: Any = said.get("id")
    method: object = said.get("method")
    if said.get("jsonrpc") != "2.0" or (method is not None and not isinstance(method, str)):
        return error_body(None, Refusal(INVALID_REQUEST, "this is no JSON-RPC message"))
    if method is None:
        client.answered(said)
        return None
    if "id" not in said:
        if method == "notifications/cancelled":
            client.cancelled(fields(said.get("params")).get("requestId"))
        return None
    if not is_id(key) or method == "initialize":
        problem = "the id of a request is a text or a whole number, and a handshake stands alone"
        return error_body(key if is_id(key) else None, Refusal(INVALID_REQUEST, problem))
    return await answer(said)
