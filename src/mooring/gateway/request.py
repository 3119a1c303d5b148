"""One request of a client, and what is said on its way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mooring.gateway.client import Client, Exchange
from mooring.gateway.protocol import LOG_LEVEL, fields, notice_body
from mooring.local import Progress

__all__ = ["Request", "ask_client", "heard", "instructions", "progress"]

MOST_INSTRUCTIONS = 8_000


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a client."""

    client: Client
    method: str
    params: dict[str, Any]
    exchange: Exchange

    @property
    def meta(self) -> dict[str, Any]:
        return fields(self.params.get("_meta"))


def progress(request: Request) -> Progress | None:
    token = request.meta.get("progressToken")
    if not isinstance(token, int | str) or not request.exchange.streams:
        return None

    async def forward(progress: float, total: float | None, message: str | None) -> None:
        news: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            news["total"] = total
        if message is not None:
            news["message"] = message
        request.exchange.send(notice_body("notifications/progress", news))

    return forward


def heard(request: Request, method: str, params: Mapping[str, Any]) -> None:
    """A notice of the server that belongs to a request of this client."""
    client = request.client
    if method != "notifications/message" or client.wants_log(
        params.get("level"), request.meta.get(LOG_LEVEL)
    ):
        request.exchange.send(notice_body(method, params))


async def ask_client(request: Request, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return await request.client.ask(method, params, request.exchange)


def instructions(client: Client) -> dict[str, str]:
    """What the servers say of themselves, each under its own name, as one text."""
    parts = [
        f"# {group.id.removeprefix('mcp:')}\n{group.instructions}"
        for group in client.view.catalog.groups
        if group.instructions
    ]
    joined = "\n\n".join(parts)
    return {"instructions": joined[:MOST_INSTRUCTIONS]} if joined else {}
