"""The prompts of all servers, the completion of their arguments, and the verbs of `Host` for contents."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from mooring.core.builtin_tools import fitting, prompt_result
from mooring.core.text import nearest
from mooring.core.types import EMPTY, Contents, Message, Prompt, Result
from mooring.core.value import Value
from mooring.errors import AuthNeeded, CallError, NotTrusted, ServerError, UnknownPrompt
from mooring.resources import ResourceList, Resources
from mooring.servers.catalog import CatalogBuilder
from mooring.servers.manager import ServerManager
from mooring.servers.waiting import gather
from mooring.telemetry import AuditManager

__all__ = ["ContentVerbs", "PromptList", "Prompts"]


class PromptList(Value):
    """The prompts of one server or of all."""

    prompts: tuple[Prompt, ...] = ()
    errors: Mapping[str, str] = EMPTY
    """By server: why its prompts are missing."""


class Prompts:
    """Lists, gets and completes the prompts of the servers of a host."""

    def __init__(self, manager: ServerManager, catalog: CatalogBuilder, audits: AuditManager) -> None:
        self._manager, self._builder, self._audits = manager, catalog, audits

    async def list(self, server: str | None = None, *, timeout: float | None = None) -> PromptList:
        """Implement `Host.prompts`."""
        errors = await gather(self._manager, None if server is None else (server,), timeout)
        for status in self._manager.status():
            failed = [text for text in status.warnings if text.startswith(f"{status.name}: prompts/")]
            if failed and server in (None, status.name):
                errors[status.name] = "; ".join(failed)
        found = tuple(prompt for prompt in self._builder.catalog.prompts if server in (None, prompt.server))
        return PromptList(prompts=found, errors=errors)

    async def get(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[Message, ...]:
        """Implement `Host.prompt`."""
        audit, work = self._audits.log, self._get(server, name, arguments, timeout)
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
                f"the prompt {name!r} of {server!r} was not requested: {problem}",
                server=server,
                tool=name,
                outcome="not sent",
            ) from None
        params = {"name": name, "arguments": given}
        raw = await self._manager.connection(server).ask("prompts/get", params, about=name, timeout=timeout)
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
        """Return the messages of a prompt as the result of a call."""
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
        """Implement `Host.complete`."""
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
        raw = await self._manager.connection(server).ask(
            "completion/complete", params, about=about, timeout=timeout
        )
        return wire.completion(raw)

    async def _find(self, server: str, name: str, timeout: float | None) -> Prompt:
        """Return the prompt of the catalog; connect its server if needed. Unapproved changes hide a
        prompt."""
        if (found := self._listed(server, name)) is None:
            errors = await gather(self._manager, (server,), timeout)
            found = self._listed(server, name)
            if found is None and server in errors:
                problem = self._manager.connection(server).supervisor.problem
                if isinstance(problem, AuthNeeded | NotTrusted):
                    raise problem
                raise CallError(
                    f"the prompt {name!r} was not requested: {server!r} is not connected: {errors[server]}",
                    server=server,
                    tool=name,
                    outcome="not sent",
                )
        if found is None:
            names = [prompt.name for prompt in self._builder.catalog.prompts if prompt.server == server]
            raise UnknownPrompt(name, nearest(name, names), hint=f"See the prompts of {server!r}.")
        return found

    def _listed(self, server: str, name: str) -> Prompt | None:
        every = self._builder.catalog.prompts
        return next((prompt for prompt in every if (prompt.server, prompt.name) == (server, name)), None)


class ContentVerbs:
    """The verbs of `Host` for resources and prompts."""

    _resources: Resources
    _prompts: Prompts

    async def resources(self, server: str | None = None, *, timeout: float | None = None) -> ResourceList:
        """Return the resources and templates of one server or of all; servers are connected if needed.

        Args:
            server: Default: all servers.
            timeout: Seconds to wait for each connection. Default: `connect_timeout` of the server.

        Raises:
            UnknownServer: There is no such server.
        """
        return await self._resources.list(server, timeout=timeout)

    async def read(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> Contents:
        """Return the contents of a resource, from the cache if they are fresh.

        Args:
            uri: The URI of the resource.
            server: Default: the server that lists the URI, or has a template for it.
            timeout: Seconds for the whole request. Default: `call_timeout` of the server.

        Raises:
            UnknownResource, UnknownServer: There is no such resource or server.
            AmbiguousResource: Several servers have it, and `server` is not given.
            PolicyDenied: Its scheme or path is not allowed; nothing was sent.
            CallError, AuthNeeded: The server cannot be reached, or failed.
        """
        return await self._resources.read(uri, server, timeout=timeout)

    async def subscribe(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> None:
        """Emit a `ResourceUpdated` event for each change of a resource, also after reconnects.

        Args:
            uri: The URI of the resource.
            server: Default: the server that lists the URI, or has a template for it.
            timeout: Seconds for the whole request. Default: `call_timeout` of the server.

        Raises:
            UnknownResource, UnknownServer, AmbiguousResource, PolicyDenied: As for `read`.
            CallError, AuthNeeded: The server does not support subscriptions, or failed.
        """
        await self._resources.subscribe(uri, server, timeout=timeout)

    async def unsubscribe(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> None:
        """Emit no more events for a resource; see `subscribe`.

        Raises:
            UnknownResource, UnknownServer, AmbiguousResource: As for `read`.
            CallError, AuthNeeded: The server failed. No more events are emitted in any case.
        """
        await self._resources.unsubscribe(uri, server, timeout=timeout)

    async def prompts(self, server: str | None = None, *, timeout: float | None = None) -> PromptList:
        """Return the prompts of one server or of all; servers are connected if needed.

        Args:
            server: Default: all servers.
            timeout: Seconds to wait for each connection. Default: `connect_timeout` of the server.

        Raises:
            UnknownServer: There is no such server.
        """
        return await self._prompts.list(server, timeout=timeout)

    async def prompt(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[Message, ...]:
        """Return the messages of a prompt.

        Args:
            server: The server of the prompt.
            name: Its name.
            arguments: Its arguments. Default: none.
            timeout: Seconds for the whole request. Default: `call_timeout` of the server.

        Raises:
            UnknownServer, UnknownPrompt: There is no such server or prompt.
            CallError, AuthNeeded: The arguments are wrong, or the server failed.
        """
        return await self._prompts.get(server, name, arguments, timeout=timeout)

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
        """Return completions for an argument of a prompt, or for a variable of a resource template.

        Args:
            server: The server of the prompt or template.
            argument: The argument or variable to complete.
            value: Its value so far.
            prompt: The name of the prompt; either this or `template`.
            template: The URI template; either this or `prompt`.
            context: The values of other arguments. Default: none.
            timeout: Seconds for the whole request. Default: `call_timeout` of the server.

        Raises:
            UnknownServer: There is no such server.
            CallError, AuthNeeded: The server does not support completion, or failed.
            ValueError: Both or neither of `prompt` and `template` are given.
        """
        return await self._prompts.complete(
            server,
            argument=argument,
            value=value,
            prompt=prompt,
            template=template,
            context=context,
            timeout=timeout,
        )
