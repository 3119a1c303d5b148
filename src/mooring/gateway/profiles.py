"""Profiles: the part of the catalog that a group of clients sees."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from mooring.audit import CALLER
from mooring.config.logs import logger
from mooring.config.sections import ProfileSettings, ScriptSettings
from mooring.core.builtin_tools import is_login
from mooring.core.catalog import Catalog, merge
from mooring.core.discovery import OWNER, Mode, VisibleTools, plan_exposure
from mooring.core.events import Event
from mooring.core.extensions import QUALIFIED, original, qualified
from mooring.core.names import Style, assign
from mooring.core.search import Index, Ranker
from mooring.core.transforms import CallContext, call_context
from mooring.core.types import EMPTY, Absence, Prompt, Resource, ResourceTemplate, Result, Snapshot, Tool
from mooring.core.uris import matches, scheme_of
from mooring.errors import MooringError, UnknownServer
from mooring.gateway.protocol import Refusal, fields
from mooring.host import runtime_of
from mooring.local import Provider
from mooring.policy import ApprovalRequest, plan_text
from mooring.results.pipeline import ResultPipeline, Rules
from mooring.session import Session
from mooring.transport.forwarding import FORWARDED

if TYPE_CHECKING:
    from mooring.audit import Audit
    from mooring.host import Host
    from mooring.policy.guards import GuardChain

log = logger("mooring.gateway")

MAX_WARNINGS = 200
"""Warnings about transforms that one profile logs at most."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class ProfileCatalog:
    """The visible tools, prompts, resources and templates of a profile."""

    catalog: Catalog
    prompts: Mapping[str, Prompt]
    """By the name that clients use."""
    resources: Mapping[str, Resource]
    """By the URI that clients use. If two servers have the same URI, the first server by name wins."""
    templates: Mapping[str, ResourceTemplate]
    """By the URI template that clients use."""


class Profile:
    """A restricted host for sessions: they see and call what the profile allows."""

    inner = False
    """Whether its clients are other nodes of a cluster."""

    def __init__(self, host: Host, settings: ProfileSettings, name: str = "", *, logins: bool = True) -> None:
        self.host = host
        self._runtime = runtime_of(host)
        self.name = name
        self.settings = settings
        self._logins = logins
        self.sessions: dict[str, Session] = {}
        """Sessions of clients without one of their own, by principal."""
        self._seen: Catalog | None = None
        self._contents: ProfileCatalog | None = None
        self._index: tuple[Catalog, Index] | None = None
        self._warned: set[str] = set()

    def reconfigure(self, settings: ProfileSettings, *, logins: bool) -> None:
        """Apply new settings to the same sessions.

        Args:
            settings: The settings of the profile.
            logins: Whether clients may start logins for shared servers. False if clients are authenticated.
        """
        self.settings, self._logins, self._seen = settings, logins, None

    @property
    def style(self) -> Style:
        return self.settings.style or self.host.style

    @property
    def contents(self) -> ProfileCatalog:
        """The visible contents; rebuilt after the host's catalog changed."""
        whole = self.host.catalog
        if self._contents is None or self._seen is not whole:
            self._seen, self._contents = whole, self._make(whole)
        return self._contents

    # --- for sessions ---------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        return self.contents.catalog

    @property
    def index(self) -> Index:
        catalog = self.catalog
        if self._index is None or self._index[0] is not catalog:
            self._index = (catalog, Index.build(catalog.tools, catalog.groups))
        return self._index[1]

    @property
    def ranker(self) -> Ranker | None:
        return self._runtime.ranker

    @property
    def results(self) -> ResultPipeline:
        return self._runtime.results

    @property
    def audit(self) -> Audit | None:
        return self._runtime.audit

    def rules(self, server: str) -> Rules:
        return self._runtime.rules(server)

    @property
    def discovery(self) -> Mode:
        """The profile's own setting, not the host's."""
        return self.settings.discovery

    def exposure(self, mode: Mode) -> VisibleTools:
        return plan_exposure(self.catalog, mode, self.host.config.discovery_budget)

    def provider(self, name: str, session: Session) -> Provider:
        if not self.admits(name):
            raise UnknownServer(name)
        return self._runtime.provider(name, self._behind(session))

    async def leave(self, session: Session) -> None:
        await self._runtime.leave(self._behind(session))

    def _behind(self, session: Session) -> Session:
        """Return the host's session of a client, which owns the client's isolated connections."""
        return self.host.session(session.id, agent_id=session.agent_id, principal=session.principal)

    def allows(self, tool: Tool) -> bool:
        return self._runtime.allows(tool)

    async def permit(
        self, tool: Tool, arguments: Mapping[str, Any], context: CallContext, timeout: float | None
    ) -> None:
        await self._runtime.permit(tool, arguments, context, timeout)

    def context(self, session: Session) -> CallContext:
        caller = CALLER.get()
        return call_context(
            session.id,
            session.agent_id,
            session.principal,
            secret_session=True,
            profile=self.name,
            headers=EMPTY if caller is None else caller.headers,
        )

    def shown_to(self, session: Session, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        return self._runtime.shown_to(session, tools, self.context(session))

    @property
    def by_caller(self) -> bool:
        """Whether the rules hide tools from some clients, or at some times."""
        return self._runtime.policy.by_caller

    @property
    def guards(self) -> GuardChain | None:
        return self._runtime.guards

    @property
    def scripts(self) -> ScriptSettings:
        """The profile's own setting; for the default profile, the host's if it has none."""
        own = self.settings.scripts
        return own if self.name or own.enabled else self.host.config.scripts

    @property
    def workers(self) -> Any:
        return self._runtime.workers

    def plans(self, tool: Tool) -> str | None:
        return self._runtime.plans(tool)

    def denies(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> str | None:
        return self._runtime.denies(tool, arguments, context)

    async def approve(self, request: ApprovalRequest, timeout: float) -> bool:
        """Ask the client by elicitation; a client that cannot answer leaves the question to the host."""
        answer = await _asked_client(request, timeout)
        return await self._runtime.approve(request, timeout) if answer is None else answer

    async def get_prompt(self, tool: Tool, arguments: Mapping[str, Any], timeout: float | None) -> Result:
        return await self._runtime.get_prompt(tool, arguments, timeout)

    async def arrival(self, tool: str, timeout: float | None) -> None:
        """Wait until `tool` exists, or no starting server can provide it; see `HostRuntime.arrival`."""
        await self._runtime.arrival(tool, timeout, self)

    def absence(self, tool: str) -> Absence | None:
        return self._runtime.absence(tool, self)

    def withheld(self, tool: str) -> MooringError | None:
        """Return why a tool is hidden; None for tools of pages and of servers that the profile does not have,
        which do not exist for its clients."""
        if tool in self._runtime.catalog.app_tools:
            return None
        problem: Any = self._runtime.withheld(tool)
        return problem if problem is None or self.admits(problem.server) else None

    def check_running(self) -> None:
        self._runtime.check_running()

    @property
    def observed(self) -> bool:
        return self._runtime.observed

    def emit(self, event: Event) -> None:
        self._runtime.emit(event)

    # --- filters --------------------------------------------------------------------------------

    def admits(self, server: str) -> bool:
        """Whether this server is visible."""
        return any(fnmatchcase(server, glob) for glob in self.settings.servers)

    def shares(self, server: str) -> bool:
        """Whether all sessions use one connection to this server."""
        return self.admits(server) and not self._isolated(server)

    def _isolated(self, server: str) -> bool:
        return any(one.name == server and one.isolation == "session" for one in self.host.config.servers)

    def _passes(self, tool: Tool) -> bool:
        if tool.verb != "call" or tool.server == OWNER:
            return False  # clients use the protocol for resources and prompts, not tools
        if not self._logins and is_login(tool) and not self._isolated(tool.server):
            return False
        # A transform does not take a tool out of the globs for its own name.
        names = {f"{tool.server}/{tool.remote_name}", f"{tool.server}/{tool.own_name}"}
        if any(fnmatchcase(name, glob) for name in names for glob in self.settings.deny):
            return False
        return any(fnmatchcase(name, glob) for name in names for glob in self.settings.allow)

    def _make(self, whole: Catalog) -> ProfileCatalog:
        settings = self.settings
        catalog = self._part(whole)
        # `merge` would turn them into tools again.
        prompts = [prompt for prompt in whole.prompts if settings.prompts and self.admits(prompt.server)]
        pairs = [(prompt.server, prompt.name) for prompt in prompts]
        names = assign(pairs, self.style, whole.configured)
        resources: dict[str, Resource] = {}
        for resource in catalog.resources if settings.resources else ():
            shown = qualified(resource.uri, resource.server)
            if resources.setdefault(shown, resource) is not resource:
                log.warning(
                    "resource hidden, another server has the same URI uri=%r server=%r other=%r",
                    shown[:200],
                    resource.server,
                    resources[shown].server,
                )
        templates: dict[str, ResourceTemplate] = {}
        for template in catalog.templates if settings.resources else ():
            templates.setdefault(qualified(template.uri_template, template.server), template)
        return ProfileCatalog(
            catalog=catalog,
            prompts={
                names[prompt.server, prompt.name]: prompt
                for prompt in prompts
                if (prompt.server, prompt.name) in names
            },
            resources=resources,
            templates=templates,
        )

    def _part(self, whole: Catalog) -> Catalog:
        """Return the catalog of the visible servers and tools, with this profile's names."""
        offers: dict[str, list[Tool]] = {server: [] for server in whole.servers if self.admits(server)}
        own: dict[str, list[Tool]] = {}
        for tool in (*whole.tools.values(), *whole.app_tools.values()):
            if self.admits(tool.server) and self._passes(tool):
                if tool.server in offers:
                    offers[tool.server].append(replace(tool, name=tool.own_name))
                else:
                    own.setdefault(tool.server, []).append(tool)
        if self.settings.transforms:
            offers = {server: self._shaped(server, tools) for server, tools in offers.items()}
        instructions = {group.id: group for group in whole.groups}

        def snapshot(server: str, tools: list[Tool]) -> Snapshot:
            group = instructions.get(f"mcp:{server}")
            parts: dict[str, Any] = {
                "resources": tuple(item for item in whole.resources if item.server == server),
                "templates": tuple(item for item in whole.templates if item.server == server),
                "skills": tuple(
                    replace(item, name=item.name.partition("/")[2])
                    for item in whole.skills
                    if item.server == server and self.settings.resources
                ),
                "extensions": tuple(item for item in whole.extensions if item.server == server),
            }
            return Snapshot(
                server=server,
                tools=tuple(tools),
                instructions=group.instructions if group else None,
                **parts,
            )

        return merge(
            [snapshot(server, tools) for server, tools in offers.items()],
            style=self.style,
            static=[snapshot(server, tools) for server, tools in own.items()],
            configured=whole.configured,
            previous=self._contents.catalog if self._contents is not None else None,
        )

    def _shaped(self, server: str, tools: list[Tool]) -> list[Tool]:
        """Return the tools of a server with the transforms of this profile."""
        from mooring.core.transforms import shape_tools

        start = f"{server}/"
        own = {
            name.removeprefix(start): transform
            for name, transform in self.settings.transforms.items()
            if name.startswith(start)
        }
        if not own:
            return tools
        shaped = shape_tools(tools, own)
        for warning in shaped.warnings:
            if warning not in self._warned and len(self._warned) < MAX_WARNINGS:
                self._warned.add(warning)
                log.warning("profile %r: %s", self.name, warning)
        return list(shaped.tools)


def resource_server(profile: Profile, uri: str) -> tuple[str, str] | None:
    """Return the server for a URI or URI template that a client uses, and the server's own form of it.

    That is the server in a `ui://` or `skill://` address; for others the server that lists it, else the one
    with a matching template, else the only one with resources: some servers do not list all of theirs.
    """
    contents = profile.contents
    if (resource := contents.resources.get(uri)) is not None:
        return resource.server, resource.uri
    if (template := contents.templates.get(uri)) is not None:
        return template.server, template.uri_template
    if scheme_of(uri) in QUALIFIED:
        found = original(uri)
        known = found is not None and found[0] in contents.catalog.configured and profile.admits(found[0])
        return found if known and profile.settings.resources else None
    for pattern, item in contents.templates.items():
        if matches(pattern, uri):
            return item.server, uri
    owners = {item.server for item in (*contents.resources.values(), *contents.templates.values())}
    return (owners.pop(), uri) if len(owners) == 1 else None


async def _asked_client(request: ApprovalRequest, timeout: float) -> bool | None:
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
