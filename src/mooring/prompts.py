"""The prompts of all servers, and the completion of their arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mooring.core.builtin_tools import fitting, prompt_result
from mooring.core.catalog import Catalog
from mooring.core.text import nearest
from mooring.core.types import EMPTY, Message, Prompt, Result
from mooring.core.value import Value
from mooring.errors import CallError, ServerError, UnknownPrompt
from mooring.servers.manager import ServerManager
from mooring.servers.waiting import gather

if TYPE_CHECKING:
    from mooring.audit import Audit

__all__ = ["PromptList", "Prompts"]


class PromptList(Value):
    """The prompts of all servers."""

    prompts: tuple[Prompt, ...] = ()
    errors: Mapping[str, str] = EMPTY
    """By server: why its prompts are not among them."""


class Prompts:
    """The verbs of a host that concern prompts."""

    def __init__(
        self, fleet: ServerManager, catalog: Callable[[], Catalog], audit: Callable[[], Audit | None]
    ) -> None:
        self._fleet, self._catalog, self._audit = fleet, catalog, audit

    async def list(self, server: str | None = None, *, timeout: float | None = None) -> PromptList:
        """The prompts of one server or of all; those that are not connected are connected.

        Raises:
            UnknownServer: there is no such server.
        """
        errors = await gather(self._fleet, None if server is None else (server,), timeout)
        for status in self._fleet.status():
            failed = [text for text in status.warnings if text.startswith(f"{status.name}: prompts/")]
            if failed and server in (None, status.name):
                errors[status.name] = "; ".join(failed)
        found = tuple(prompt for prompt in self._catalog().prompts if server in (None, prompt.server))
        return PromptList(prompts=found, errors=errors)

    async def get(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[Message, ...]:
        """The messages of one prompt, filled in with the arguments.

        Raises:
            UnknownServer, UnknownPrompt: it is not there.
            CallError, AuthNeeded: the arguments do not fit, or the server failed.
        """
        audit, work = self._audit(), self._get(server, name, arguments, timeout)
        return await (work if audit is None else audit.other("prompt", name, arguments, work, server=server))

    async def _get(
        self, server: str, name: str, arguments: Mapping[str, Any] | None, timeout: float | None
    ) -> tuple[Message, ...]:
        from mooring.transport import wire

        prompt = await self._find(server, name, timeout)
        try:
            given = fitting(prompt, arguments or EMPTY)
        except ValueError as problem:
            raise CallError(
                f"the prompt {name!r} of {server!r} was not asked for: {problem}",
                server=server,
                tool=name,
                outcome="not sent",
            ) from None
        params = {"name": name, "arguments": given}
        raw = await self._fleet.connection(server).ask("prompts/get", params, about=name, timeout=timeout)
        try:
            return wire.messages(raw)
        except wire.Invalid as problem:
            raise ServerError(
                f"what {server!r} sent for the prompt {name!r} is not valid: {problem}",
                server=server,
                tool=name,
                code=0,
            ) from None

    async def result(
        self, server: str, name: str, arguments: Mapping[str, Any], timeout: float | None
    ) -> Result:
        """The messages of a prompt as the result of a call."""
        started = time.monotonic()
        messages = await self.get(server, name, arguments, timeout=timeout)
        prompt = await self._find(server, name, timeout)
        return prompt_result(prompt, messages, time.monotonic() - started)

    async def complete(
        self,
        server: str,
        *,
        argument: str,
        value: str,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] = EMPTY,
        timeout: float | None = None,
    ) -> tuple[str, ...]:
        """What the server proposes for an argument of a prompt, or for a variable of a resource template,
        of which `value` is typed so far; `context` are the arguments that are known already.

        Raises:
            UnknownServer: it is not there.
            CallError, AuthNeeded: the server does not complete this, or failed.
        """
        from mooring.transport import wire

        if (prompt is None) == (template is None):
            raise ValueError("name either a prompt or a template")
        ref = (
            {"type": "ref/prompt", "name": prompt}
            if prompt is not None
            else {"type": "ref/resource", "uri": template}
        )
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        about = f"completion of {argument}"
        raw = await self._fleet.connection(server).ask(
            "completion/complete", params, about=about, timeout=timeout
        )
        return wire.completion(raw)

    async def _find(self, server: str, name: str, timeout: float | None) -> Prompt:
        """The prompt as it may be shown: one that changed since it was approved is not there."""
        if (found := self._known(server, name)) is None:
            errors = await gather(self._fleet, (server,), timeout)
            found = self._known(server, name)
            if found is None and server in errors:
                raise CallError(
                    f"the prompt {name!r} was not asked for: {server!r} is not connected: {errors[server]}",
                    server=server,
                    tool=name,
                    outcome="not sent",
                )
        if found is None:
            names = [prompt.name for prompt in self._catalog().prompts if prompt.server == server]
            raise UnknownPrompt(name, nearest(name, names), hint=f"See the prompts of {server!r}.")
        return found

    def _known(self, server: str, name: str) -> Prompt | None:
        every = self._catalog().prompts
        return next((prompt for prompt in every if (prompt.server, prompt.name) == (server, name)), None)
