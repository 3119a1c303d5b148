"""Questions that wait for a person: approvals, plans of scripts, elicitations and logins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mooring.console.journal import Journal
from mooring.console.web import VerbRefused
from mooring.core.builtin_tools import SCRIPT_NAMES
from mooring.core.elicitation import Answer, Elicitation
from mooring.core.events import shown_session
from mooring.core.redact import Redactor
from mooring.core.text import clean_for_model, line
from mooring.policy.approvals import ANSWER_TIMEOUT, ApprovalRequest, plan_text

if TYPE_CHECKING:
    from mooring.auth.login import Login

__all__ = ["Inbox"]

MOST_WAITING = 100
LONGEST = 8_000
LOGIN_LIFE = 600.0


class Inbox:
    """Asks the person at the console. Give its methods to a host as `on_approval`, `on_elicit` and `on_auth`.

    A question that no one answers is denied, or cancelled, after `ANSWER_TIMEOUT` seconds or when its call
    ends.
    """

    def __init__(self) -> None:
        self._journal: Journal | None = None
        self._redact = Redactor()
        self._waiting: dict[str, tuple[dict[str, Any], asyncio.Future[Any], Any]] = {}
        """By id: the row, the answer, and what is asked."""
        self._count = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def use(self, journal: Journal, redact: Redactor) -> None:
        """Show the questions in this journal."""
        self._journal, self._redact = journal, redact
        for row, _, _ in self._waiting.values():
            self._show(row)

    # --- callbacks of a host --------------------------------------------------------------------

    async def approve(self, request: ApprovalRequest) -> bool:
        """Return whether the person approves a call or the plan of a script."""
        plan = request.name in SCRIPT_NAMES
        row = {
            "kind": "plan" if plan else "approval",
            "server": request.server,
            "tool": line(request.tool, 300),
            "name": line(request.name, 300),
            "session": shown_session(request.session),
            "title": None if request.title is None else line(request.title, 200),
            "text": plan_text(request) if plan else "",
            "reason": line(request.reason, 500),
            "arguments": dict(request.arguments),
        }
        return await self._asked(row, request, ANSWER_TIMEOUT) is True

    async def elicit(self, question: Elicitation) -> Answer:
        """Return the person's answer to a question of a server."""
        row = {
            "kind": "elicitation",
            "server": question.server,
            "text": clean_for_model(question.message, LONGEST),
            "mode": question.mode,
            "schema": dict(question.schema),
            "url": question.url,
            "host": question.host,
            "sensitive": list(question.sensitive),
        }
        answer = await self._asked(row, question, ANSWER_TIMEOUT)
        return answer if isinstance(answer, Answer) else question.cancel()

    async def log_in(self, login: Login) -> None:
        """Show a login that a call needs, until it is over or the call gives up. The person opens it."""
        self.start_following(login)

    # --- logins ---------------------------------------------------------------------------------

    def _show_login(self, login: Login) -> str:
        """Add a login that waits for the person; return the id of its row."""
        row = {
            "kind": "login",
            "server": login.server,
            "text": f"Log in to {login.server} at {login.host}.",
            "url": login.url,
            "host": login.host,
        }
        return self._add(row, login, LOGIN_LIFE)[0]

    def start_following(self, login: Login) -> str:
        """Show a login until it is over; return the id of its row."""
        key = self._show_login(login)
        task = asyncio.create_task(self._follow(login, key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return key

    async def _follow(self, login: Login, key: str) -> None:
        """Wait until a login is over, and remove its row."""
        try:
            with suppress(Exception):  # a failed login is a state of its server
                await login.done()
        finally:
            self._remove(key)

    async def complete(self, key: str, address: str) -> None:
        """Finish a login with the address to which the browser was sent back.

        Raises:
            VerbRefused: There is no such login.
            AuthNeeded: The address is not of this login, or it failed.
        """
        login = self._found(key)[2]
        if self._waiting[key][0]["kind"] != "login":
            raise VerbRefused(400, f"{key!r} is not a login")
        await login.complete(address)

    # --- answers --------------------------------------------------------------------------------

    async def answer(self, key: str, action: str, content: Mapping[str, Any] | None) -> None:
        """Answer a question.

        Raises:
            VerbRefused: There is no such question or answer, or the content does not fit the form.
        """
        row, answer, asked = self._found(key)
        match row["kind"], action:
            case (("approval" | "plan"), ("approve" | "deny")):
                value: Any = action == "approve"
            case "elicitation", "accept":
                try:
                    value = asked.accept(content)
                except ValueError as problem:
                    raise VerbRefused(400, f"The form is not complete: {problem}") from None
            case "elicitation", ("decline" | "cancel"):
                value = asked.decline() if action == "decline" else asked.cancel()
            case "login", "cancel":
                value = False
                await asked.cancel()
            case _:
                kinds = {"login": "'cancel'", "elicitation": "'accept', 'decline' or 'cancel'"}
                known = kinds.get(row["kind"], "'approve' or 'deny'")
                raise VerbRefused(400, f"'action' must be {known}")
        if not answer.done():
            answer.set_result(value)
        self._remove(key)

    def close(self) -> None:
        """Deny and cancel everything that waits."""
        for key, (_, answer, _) in list(self._waiting.items()):
            if not answer.done():
                answer.set_result(None)
            self._remove(key)
        for task in self._tasks:
            task.cancel()

    # --- inside ---------------------------------------------------------------------------------

    async def _asked(self, row: dict[str, Any], asked: Any, timeout: float) -> Any:
        if len(self._waiting) >= MOST_WAITING:
            return None
        key, answer = self._add(row, asked, timeout)
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._remove(key)

    def _add(self, row: dict[str, Any], asked: Any, life: float) -> tuple[str, asyncio.Future[Any]]:
        self._count += 1
        key, now = f"q{self._count}", time.time()
        blank = dict.fromkeys(_KEYS)
        made = {**blank, **row, "id": key, "asked": round(now, 3), "expires": round(now + life, 3)}
        made["state"] = "waiting"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[key] = (made, future, asked)
        self._show(made)
        return key, future

    def _show(self, row: dict[str, Any]) -> None:
        if self._journal is not None:
            address = row["url"]  # an address of a login holds no secret of ours, but must stay as it is
            self._journal.put("inbox", {**self._redact.within(row), "url": address})

    def _remove(self, key: str) -> None:
        if self._waiting.pop(key, None) is not None and self._journal is not None:
            self._journal.drop("inbox", key)

    def _found(self, key: str) -> tuple[dict[str, Any], asyncio.Future[Any], Any]:
        found = self._waiting.get(key)
        if found is None:
            raise VerbRefused(404, f"Question {key[:40]!r} is answered, or its call has ended.", kind="Gone")
        return found


_KEYS = (
    "id", "kind", "server", "tool", "name", "session", "title", "text", "reason", "arguments", "schema",
    "mode", "url", "host", "sensitive",
)  # fmt: skip
