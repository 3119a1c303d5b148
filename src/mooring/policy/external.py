"""External decisions about calls: a function of the application, or an HTTP service such as OPA.

A timeout, an error and a response that cannot be interpreted all deny the call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import anyio

from mooring.concurrency import call_back
from mooring.config.logs import logger
from mooring.core.rules import Decision, Verdict
from mooring.core.text import line
from mooring.core.types import ToolCall

log = logger("mooring.policy")

MAX_ANSWER = 65_536
_VERDICTS: Mapping[str, Verdict] = {"allow": "allow", "ask": "ask", "deny": "deny"}


async def ask_function(decide: Callable[[ToolCall], Any], call: ToolCall, timeout: float) -> Decision:
    """Return the decision of the application's function. A plain function runs in a thread."""
    with anyio.move_on_after(timeout):
        try:
            said = await call_back(decide, call)
        except Exception:
            log.exception("decide() failed; the call is denied server=%s tool=%s", call.server, call.tool)
            return Decision(verdict="deny", reason="decide() of the application failed")
        return understood(said, "decide() of the application")
    return Decision(verdict="deny", reason=f"decide() of the application timed out after {timeout:g} s")


class DecisionService:
    """Client of an HTTP service. It gets `{"input": {…}}` by POST, as OPA's data API does."""

    def __init__(self) -> None:
        self._client: Any = None

    async def ask(self, url: str, call: ToolCall, now: datetime, timeout: float) -> Decision:
        """Return the decision of the service at `url`."""
        import aiohttp

        question = {
            "tool": call.tool,
            "server": call.server,
            "arguments": call.arguments,
            "principal": call.principal or "",
            "profile": call.profile or "",
            "annotations": call.annotations,
            "now": now.isoformat(),
        }
        try:
            body = json.dumps({"input": question}, default=dict).encode()
            if self._client is None:
                self._client = aiohttp.ClientSession()
            async with self._client.post(
                url,
                data=body,
                headers={"Content-Type": "application/json"},
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as response:
                if response.status != 200:
                    return _unanswered(f"answered with status {response.status}")
                raw = bytearray()
                async for part in response.content.iter_chunked(MAX_ANSWER):
                    raw += part
                    if len(raw) > MAX_ANSWER:
                        return _unanswered("sent a response that is too long")
            document: Any = json.loads(raw)
        except TimeoutError:
            return _unanswered(f"timed out after {timeout:g} s")
        except (aiohttp.ClientError, OSError) as problem:
            return _unanswered(f"could not be reached ({type(problem).__name__})")
        except (ValueError, RecursionError):
            return _unanswered("sent a response that is not JSON")
        found = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
        given = [
            understood(found[key], "the decision service") for key in ("result", "decision") if key in found
        ]
        return _strictest(given) or understood(None, "the decision service")

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


def understood(said: object, who: str) -> Decision:
    """Return the decision in a response; deny if it cannot be interpreted."""
    if isinstance(said, Decision):
        return said
    if isinstance(said, bool):
        return Decision(verdict="allow" if said else "deny", reason=f"{who} decided")
    if isinstance(said, str) and said.lower() in _VERDICTS:
        return Decision(verdict=_VERDICTS[said.lower()], reason=f"{who} decided")
    if isinstance(said, Mapping):
        fields = cast("Mapping[str, Any]", said)
        given = [fields[key] for key in ("decision", "verdict", "allow") if fields.get(key) is not None]
        found = _strictest([understood(one, who) for one in given if not isinstance(one, Mapping)])
        if found is not None and not any(isinstance(one, Mapping) for one in given):
            why = fields.get("reason")
            if isinstance(why, str) and why:
                return Decision(verdict=found.verdict, reason=f"{who}: {line(why, 200)}")
            return found
    return Decision(verdict="deny", reason=f"{who} sent a response that cannot be interpreted")


def _strictest(given: Sequence[Decision]) -> Decision | None:
    """Return the strictest of several decisions in one response; None if there is none."""
    return max(given, key=lambda one: ("allow", "ask", "deny").index(one.verdict), default=None)


def _unanswered(problem: str) -> Decision:
    log.warning("decision service failed, the call is denied: it %s", problem)
    return Decision(verdict="deny", reason=f"the decision service {problem}")
