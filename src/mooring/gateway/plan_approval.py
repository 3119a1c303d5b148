"""Ask a client of the gateway, by elicitation, to approve the plan of a script."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from mooring.core.text import clean_for_model, line
from mooring.gateway.protocol import Refusal, fields
from mooring.transport.forwarding import FORWARDED

if TYPE_CHECKING:
    from mooring.policy import ApprovalRequest

__all__ = ["asked_client", "plan_text"]

LONGEST = 4_000


def plan_text(request: ApprovalRequest) -> str:
    """Return the plan of a script in words, with the untrusted parts cleaned."""
    plan: Any = request.arguments
    lines = [f"A script wants to make {plan['writes']} calls that may change something:"]
    for entry in plan["calls"]:
        lines.append(
            f"- {entry['count']} x {line(entry['tool'], 80)} of server {line(entry['server'], 80)!r}"
        )
        lines += [f"    {line(json.dumps(one, ensure_ascii=False), 300)}" for one in entry["first"]]
        if entry["count"] > len(entry["first"]):
            lines.append(f"    … and {entry['count'] - len(entry['first'])} more")
    done = ", ".join(f"{line(tool, 80)} ({count})" for tool, count in plan["done"].items()) or "nothing"
    lines.append(f"So far: {done}.")
    if not plan["complete"]:
        lines.append(f"Then: {line(plan['then'], 200)}.")
    return clean_for_model("\n".join(lines), LONGEST)


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
