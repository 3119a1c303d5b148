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
PROGRESS = "notifications/progress"


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


def progress(request: Request) -> Progress:
    """Takes the progress of a task, which we follow ourselves; see `heard` for all other."""

    async def forward(progress: float, total: float | None, message: str | None) -> None:
        said = {"progress": progress, "total": total, "message": message}
        heard(request, PROGRESS, {key: value for key, value in said.items() if value is not None})

    return forward


def heard(request: Request, method: str, params: Mapping[str, Any]) -> None:
    """A notice of the server that belongs to a request of this client: passed on as it is, if it is wanted;
    progress under the client's own token."""
    if method == PROGRESS:
        token = request.meta.get("progressToken")
        if isinstance(token, int | str):
            request.exchange.send(notice_body(method, {**params, "progressToken": token}))
    elif method != "notifications/message" or request.client.wants_log(
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
