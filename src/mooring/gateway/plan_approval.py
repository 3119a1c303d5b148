"""Ask a client of the gateway, by elicitation, to approve the plan of a script."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mooring.gateway.protocol import Refusal, fields
from mooring.policy import plan_text
from mooring.transport.forwarding import FORWARDED

if TYPE_CHECKING:
    from mooring.policy import ApprovalRequest

__all__ = ["asked_client"]


async def asked_client(request: ApprovalRequest, timeout: float) -> bool | None:
    """Return the answer of the client whose request is under way; None if it cannot be asked."""
    forwarded = FORWARDED.get()
    if forwarded is None:
        return None
    params = {
        "mode": "form",
        "message": plan_text(request),
        "requestedSchema": {
            "type": "object",
            "properties": {"approve": {"type": "boolean", "title": "Approve these calls", "default": False}},
            "required": ["approve"],
        },
    }
    try:
        async with asyncio.timeout(timeout):
            answer = await forwarded.asked("elicitation/create", params)
    except Refusal:
        return None
    except TimeoutError:
        return False
    return answer.get("action") == "accept" and fields(answer.get("content")).get("approve") is True
