"""Questions of servers to the user: elicitation, rounds of `input_required`, and tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from mooring.concurrency import call_back
from mooring.core.elicitation import Answer, Elicitation, question
from mooring.core.text import line
from mooring.servers.active import ActiveConnection
from mooring.transport.base import log
from mooring.transport.forwarding import FORWARDED, ClientBridge, ForwardedRequest
from mooring.transport.limits import Progress
from mooring.transport.message import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    WireError,
    not_offered,
    number,
)

OnElicit = Callable[[Elicitation], Answer | Awaitable[Answer | None] | None]
"""Asks the user a question. A plain function runs in a thread; None cancels the question."""

ELICIT = "elicitation/create"
MAX_WAITING = 8
"""Questions of one server that may wait for the user; further ones are cancelled."""
_SHOWN = 200


class ElicitationHandler:
    """Handles the requests of all servers of a host, one question to the user at a time."""

    def __init__(
        self,
        ask: OnElicit | None,
        bridge: ClientBridge | None = None,
        extensions: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._ask = ask
        self._extensions = extensions
        self._bridge = bridge
        self._turn = asyncio.Lock()
        self._waiting: dict[str, int] = {}
        self._overfull: set[str] = set()
        """Servers for which a cancelled elicitation was logged as a warning."""

    @property
    def capabilities(self) -> dict[str, Any]:
        """The client capabilities to declare; empty where there is neither a callback nor a gateway."""
        if self._bridge is not None:
            return dict(self._bridge.capabilities)
        return {} if self._ask is None else {"elicitation": {"form": {}, "url": {}}}

    @property
    def extensions(self) -> Mapping[str, Any]:
        """The extensions of the protocol to declare."""
        return self._extensions()

    @property
    def asks(self) -> bool:
        """Whether the application has an `on_elicit` callback."""
        return self._ask is not None

    def heard(
        self, method: str, params: Mapping[str, Any], forwarded_requests: Sequence[ForwardedRequest] = ()
    ) -> None:
        """Pass a notification to the client that it concerns; `forwarded_requests` are pending on its
        transport."""
        if self._bridge is None:
            return
        if (forwarded := self._bridge.find(forwarded_requests, question=False)) is not None:
            forwarded.heard(method, params)

    async def answer(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any],
        forwarded_requests: Sequence[ForwardedRequest] = (),
    ) -> dict[str, Any]:
        """Return the result for a server's request; `forwarded_requests` are pending on its connection.

        Raises:
            WireError: there is none; the text may be shown to the server and the model.
        """
        bridge = self._bridge
        if bridge is not None and (forwarded := bridge.find(forwarded_requests, question=True)) is not None:
            forwarded.waiting += 1
            try:
                return await forwarded.asked(method, params)
            finally:
                forwarded.waiting -= 1
        if method == "roots/list" and self._bridge is not None:
            return {"roots": []}  # the capability was declared for gateway clients, and none is connected
        if self._bridge is not None and (method != ELICIT or self._ask is None):
            raise _no_single_client(
                method, params, len({id(forwarded.client) for forwarded in forwarded_requests})
            )
        if method != ELICIT:
            raise not_offered(method)
        if self._ask is None:
            raise _no_callback(params)
        try:
            asked = question(server, params)
        except ValueError as problem:
            raise WireError(
                f"its elicitation was not shown to the user: {problem}",
                kind="answer",
                outcome="failed",
                code=INVALID_PARAMS,
            ) from None
        return _as_result(await self._in_turn(self._ask, asked))

    async def _in_turn(self, ask: OnElicit, asked: Elicitation) -> Answer:
        waiting = self._waiting.get(asked.server, 0)
        if waiting >= MAX_WAITING:
            tell = log.debug if asked.server in self._overfull else log.warning
            tell(
                "elicitation cancelled: server=%s waiting=%d (at most %d)", asked.server, waiting, MAX_WAITING
            )
            self._overfull.add(asked.server)
            return asked.cancel()
        self._waiting[asked.server] = waiting + 1
        try:
            async with self._turn:
                return await _asked(ask, asked)
        finally:
            self._waiting[asked.server] -= 1


async def _asked(ask: OnElicit, asked: Elicitation) -> Answer:
    """Return the answer of the application; an exception or an invalid answer is logged and cancels."""
    try:
        answer: object = await call_back(ask, asked)
        if answer is None:
            return asked.cancel()
        if not isinstance(answer, Answer):
            kind = type(answer).__name__
            raise TypeError(
                f"on_elicit must return an Answer, such as question.accept(...), or None, not {kind}"
            )
        return asked.accept(answer.content) if answer.action == "accept" else answer
    except Exception:
        log.exception("elicitation cancelled: on_elicit failed, server=%s", asked.server)
        return asked.cancel()


def _no_callback(params: Mapping[str, Any]) -> WireError:
    return _refused(
        "it needs input from the user, and this application cannot ask (it has no `on_elicit`)", params
    )


def _no_single_client(method: str, params: Mapping[str, Any], clients: int) -> WireError:
    """Return the error for a request that belongs to no client of the gateway, or to one of several."""
    if clients == 0:
        return _refused(
            f"it sent {method} while no client of the gateway has a pending request at it", params
        )
    return _refused(
        f"it sent {method} while {clients} clients of the gateway have pending requests on the same "
        "connection, and the message does not name its request. Set `isolation: session` for this server to "
        "give each client a connection of its own, or call again when no other client uses it",
        params,
    )


def _refused(reason: str, params: Mapping[str, Any]) -> WireError:
    said = params.get("message")
    words = f" Its question: {line(said, _SHOWN)}" if isinstance(said, str) and said else ""
    with suppress(ValueError):
        if params.get("mode") == "url" and (url := question("", params).url) is not None:
            words += f" The URL that the user should open: {url}"
    return WireError(f"{reason}.{words}", kind="answer", outcome="failed", code=METHOD_NOT_FOUND)


def _as_result(answer: Answer) -> dict[str, Any]:
    given = {"content": dict(answer.content)} if answer.content is not None else {}
    return {"action": answer.action, **given}


ROUNDS = 8
"""Rounds of `input_required` in one call; then it fails."""
MOST_REQUESTS = 16
PAUSE = 0.2
"""Seconds between rounds without input requests, in which the server only waits."""

Send = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
AnswerInput = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


async def finished(
    raw: dict[str, Any], send: Send, params: dict[str, Any], answer: AnswerInput
) -> dict[str, Any]:
    """Return the final result: input requests are answered, and the request is sent again.

    Args:
        raw: The first result of the server.
        send: Sends the request again.
        params: The parameters of the request.
        answer: Answers one input request.

    Raises:
        WireError: Too many rounds, or an input request that cannot be answered.
    """
    rounds = 1
    while raw.get("resultType") == "input_required" and not passed_on():
        if rounds == ROUNDS:
            raise failed(f"it asked for input {ROUNDS} times and was cancelled")
        rounds += 1
        requests, state = raw.get("inputRequests"), raw.get("requestState")
        sent = dict(params)
        if requests:
            sent["inputResponses"] = await answer_inputs(requests, answer)
        elif state is None:
            raise failed("it asks for input without naming any")
        else:
            await asyncio.sleep(PAUSE)
        if state is not None:
            sent["requestState"] = state
        raw = await send(sent)
    return raw


def passed_on() -> bool:
    """Whether the caller answers the questions itself."""
    forwarded = FORWARDED.get()
    return forwarded is not None and forwarded.answers


async def answer_inputs(requests: object, answer: AnswerInput) -> dict[str, Any]:
    """Return the responses to a server's input requests, by key.

    Raises:
        WireError: One of them cannot be answered.
    """
    if not isinstance(requests, dict) or len(cast("dict[str, Any]", requests)) > MOST_REQUESTS:
        raise failed(
            f"it asks for input in a form that is not known, or for more than {MOST_REQUESTS} at once"
        )
    answers: dict[str, Any] = {}
    for key, request in cast("dict[str, Any]", requests).items():
        fields = cast("dict[str, Any]", request) if isinstance(request, dict) else {}
        method, params = fields.get("method"), fields.get("params")
        given = cast("dict[str, Any]", params) if isinstance(params, dict) else {}
        answers[key] = await answer(str(method), given)
    return answers


def failed(text: str) -> WireError:
    return WireError(text, kind="answer", outcome="failed")


USUAL_WAIT, SHORTEST_WAIT, LONGEST_WAIT = 1.0, 0.05, 60.0
CANCEL_TIMEOUT = 5.0
MOST_ANSWERS = 64
NOTICES = ("notifications/tasks", "notifications/tasks/status")

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


def task_in(raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the task that a result refers to, if any."""
    found = raw if raw.get("resultType") == "task" else raw.get("task")
    if not isinstance(found, Mapping) or "content" in raw:
        return None
    return cast("Mapping[str, Any]", found)


class Task:
    """One task of a server, polled by the caller."""

    def __init__(
        self, state: Mapping[str, Any], live: ActiveConnection, ask: Ask, answer: AnswerInput
    ) -> None:
        self._state = state
        self._live, self._ask, self._answer = live, ask, answer
        self._handshake = live.peer.era == "legacy"
        self._news = asyncio.Event()
        self._answered: set[str] = set()
        task_id = state.get("taskId")
        if not isinstance(task_id, str) or not task_id:
            raise failed("it answered with a task that has no id")
        self.id = task_id
        self.ended = False
        """Whether the server reported the end of the task."""

    async def result(self, on_progress: Progress | None) -> dict[str, Any]:
        """Return the result of the task.

        Raises:
            WireError: The task failed or was cancelled.
        """
        self._live.task_news[self.id] = self._news.set
        listener = asyncio.ensure_future(self._listen())
        try:
            said, step = None, 0
            while (result := await self._concluded()) is None:
                message = self._state.get("statusMessage")
                if isinstance(message, str) and message != said and on_progress is not None:
                    said, step = message, step + 1
                    await on_progress(float(step), None, message)
                await self._wait()
                self._state = await self._ask("tasks/get", {"taskId": self.id})
            return result
        finally:
            del self._live.task_news[self.id]
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener

    def abandon(self) -> None:
        """Cancel the task on the server, without waiting for the answer."""
        self._live.channel.spawn(self._cancel)

    async def _cancel(self) -> None:
        with suppress(WireError):
            await self._live.ask("tasks/cancel", {"taskId": self.id}, timeout=CANCEL_TIMEOUT)

    async def _concluded(self) -> dict[str, Any] | None:
        """Return the result if the task has one; pending input requests are answered."""
        status = self._state.get("status")
        if status == "working":
            return None
        self.ended = status in ("cancelled", "completed", "failed")
        if status == "cancelled":
            raise failed(f"the server cancelled it{self._said()}")
        if status not in ("input_required", "completed", "failed"):
            raise failed("its task has an unknown status")
        if self._handshake:
            # The task ends, or asks its questions, while the result is awaited.
            return await self._ask("tasks/result", {"taskId": self.id})
        if status == "input_required":
            await self._give_input()
            return None
        if "result" not in self._state and "error" not in self._state:
            self._state = await self._ask("tasks/get", {"taskId": self.id})
        return self._ended()

    def _ended(self) -> dict[str, Any]:
        result, error = self._state.get("result"), self._state.get("error")
        if isinstance(result, dict):
            return cast("dict[str, Any]", result)
        fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
        code, text = fields.get("code"), fields.get("message")
        raise WireError(
            text if isinstance(text, str) and text else f"its task failed{self._said()}",
            kind="answer",
            outcome="failed",
            code=code if isinstance(code, int) else INTERNAL_ERROR,
            data=fields.get("data"),
        )

    async def _give_input(self) -> None:
        requests = self._state.get("inputRequests")
        if not isinstance(requests, dict):
            requests = {}
        new = {
            key: request
            for key, request in cast("dict[str, Any]", requests).items()
            if key not in self._answered
        }
        if not new:
            return
        if len(self._answered) + len(new) > MOST_ANSWERS:
            raise failed(f"it asked for input more than {MOST_ANSWERS} times and was cancelled")
        answers = await answer_inputs(new, self._answer)
        self._answered |= new.keys()
        await self._ask("tasks/update", {"taskId": self.id, "inputResponses": answers})

    async def _wait(self) -> None:
        """Wait for a notification, at most for the poll interval of the server."""
        hint = number(self._state.get("pollIntervalMs", self._state.get("pollInterval")))
        wait = USUAL_WAIT if hint is None else hint / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(wait, SHORTEST_WAIT), LONGEST_WAIT)):
                await self._news.wait()
        self._news.clear()

    async def _listen(self) -> None:
        """Subscribe to changes of the task; it is polled as well."""
        if not self._handshake:
            params = {"notifications": {"taskIds": [self.id]}}
            key = f"task-{self._live.next_number()}"
            self._live.task_keys.add(key)
            try:
                with suppress(WireError):
                    await self._live.ask("subscriptions/listen", params, timeout=None, request_id=key)
            finally:
                self._live.task_keys.discard(key)

    def _said(self) -> str:
        text = self._state.get("statusMessage")
        return f": {text}" if isinstance(text, str) and text else ""
