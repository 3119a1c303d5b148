"""Profiles: the part of the catalog that one kind of client sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from mooring.config.logs import logger
from mooring.config.sections import ProfileSettings
from mooring.core.builtin_tools import is_login
from mooring.core.catalog import Catalog, merge
from mooring.core.discovery import OWNER, Mode, VisibleTools, plan_exposure
from mooring.core.events import Event
from mooring.core.names import Style, assign
from mooring.core.search import Index, Ranker
from mooring.core.types import Absence, Prompt, Resource, ResourceTemplate, Result, Snapshot, Tool
from mooring.core.uris import matches
from mooring.errors import MooringError, UnknownServer
from mooring.host import runtime_of
from mooring.local import Provider
from mooring.results.pipeline import ResultPipeline, Rules
from mooring.session import Session

if TYPE_CHECKING:
    from mooring.audit import Audit
    from mooring.host import Host

log = logger("mooring.gateway")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTools:
    """What a view shows at one instant, and where each thing comes from."""

    catalog: Catalog
    prompts: Mapping[str, Prompt]
    """By the name that clients use."""
    resources: Mapping[str, Resource]
    """By URI: of two servers with the same one, the first by name is heard."""
    templates: Mapping[str, ResourceTemplate]


class Profile:
    """A shore for sessions: they see and call what the profile lets through, and nothing else."""

    def __init__(self, host: Host, settings: ProfileSettings, name: str = "", *, logins: bool = True) -> None:
        self.host = host
        self._runtime = runtime_of(host)
        self.name = name
        self.settings = settings
        self._logins = logins
        self.sessions: dict[str, Session] = {}
        """Of the clients that have none of their own, by principal."""
        self._seen: Catalog | None = None
        self._offer: ProfileTools | None = None
        self._index: tuple[Catalog, Index] | None = None

    def take(self, settings: ProfileSettings, *, logins: bool) -> None:
        """Show from now on what these settings say, under the same name and to the same sessions.

        Args:
            settings: Of the profile.
            logins: Whether clients may begin a login that everybody would use; where clients are told
                apart, only whoever runs the gateway may.
        """
        self.settings, self._logins, self._seen = settings, logins, None

    @property
    def style(self) -> Style:
        return self.settings.style or self.host.style

    @property
    def offer(self) -> ProfileTools:
        """Made anew when the host's catalog is another one."""
        whole = self.host.catalog
        if self._offer is None or self._seen is not whole:
            self._seen, self._offer = whole, self._make(whole)
        return self._offer

    # --- for sessions ---------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        return self.offer.catalog

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
        """The host's own session of a client: it has the connections that are the client's alone."""
        return self.host.session(session.id, agent_id=session.agent_id, principal=session.principal)

    def allows(self, tool: Tool) -> bool:
        return self._runtime.allows(tool)

    async def permit(
        self, tool: Tool, arguments: Mapping[str, Any], session: str, timeout: float | None
    ) -> None:
        await self._runtime.permit(tool, arguments, session, timeout)

    async def get_prompt(self, tool: Tool, arguments: Mapping[str, Any], timeout: float | None) -> Result:
        return await self._runtime.get_prompt(tool, arguments, timeout)

    async def arrival(self, tool: str, timeout: float | None) -> None:
        """Wait until `tool` is there, or no server could still bring it; see `HostRuntime.arrival`."""
        await self._runtime.arrival(tool, timeout, self)

    def absence(self, tool: str) -> Absence | None:
        return self._runtime.absence(tool, self)

    def withheld(self, tool: str) -> MooringError | None:
        return self._runtime.withheld(tool)

    def check_running(self) -> None:
        self._runtime.check_running()

    @property
    def observed(self) -> bool:
        return self._runtime.observed

    def emit(self, event: Event) -> None:
        self._runtime.emit(event)

    # --- inside ---------------------------------------------------------------------------------

    def admits(self, server: str) -> bool:
        """Whether anything of this server is shown."""
        return any(fnmatchcase(server, glob) for glob in self.settings.servers)

    def shares(self, server: str) -> bool:
        """Whether all sessions use one connection to this server."""
        return self.admits(server) and not self._isolated(server)

    def _isolated(self, server: str) -> bool:
        return any(one.name == server and one.isolation == "session" for one in self.host.config.servers)

    def _passes(self, tool: Tool) -> bool:
        if tool.verb != "call" or tool.server == OWNER:
            return False  # clients have resources and prompts themselves, and need no tools for them
        if not self._logins and is_login(tool) and not self._isolated(tool.server):
            return False
        name = f"{tool.server}/{tool.remote_name}"
        if any(fnmatchcase(name, glob) for glob in self.settings.deny):
            return False
        return any(fnmatchcase(name, glob) for glob in self.settings.allow)

    def _make(self, whole: Catalog) -> ProfileTools:
        settings = self.settings
        catalog = self._part(whole)
        # Not through the merge, which would make tools of them again.
        prompts = [prompt for prompt in whole.prompts if settings.prompts and self.admits(prompt.server)]
        pairs = [(prompt.server, prompt.name) for prompt in prompts]
        names = assign(pairs, self.style, whole.configured)
        resources: dict[str, Resource] = {}
        for resource in catalog.resources if settings.resources else ():
            if resources.setdefault(resource.uri, resource) is not resource:
                log.warning(
                    "%r of %r is hidden: %r has a resource of the same URI",
                    resource.uri[:200],
                    resource.server,
                    resources[resource.uri].server,
                )
        templates: dict[str, ResourceTemplate] = {}
        for template in catalog.templates if settings.resources else ():
            templates.setdefault(template.uri_template, template)
        return ProfileTools(
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
        """The catalog of the servers and tools that this profile shows, under its own names."""
        offers: dict[str, list[Tool]] = {server: [] for server in whole.servers if self.admits(server)}
        own: dict[str, list[Tool]] = {}
        for tool in whole.tools.values():
            if self.admits(tool.server) and self._passes(tool):
                if tool.server in offers:
                    offers[tool.server].append(replace(tool, name=tool.remote_name))
                else:
                    own.setdefault(tool.server, []).append(tool)
        instructions = {group.id: group for group in whole.groups}

        def snapshot(server: str, tools: list[Tool]) -> Snapshot:
            group = instructions.get(f"mcp:{server}")
            parts: dict[str, Any] = {
                "resources": tuple(item for item in whole.resources if item.server == server),
                "templates": tuple(item for item in whole.templates if item.server == server),
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
            previous=self._offer.catalog if self._offer is not None else None,
        )


def resource_server(view: Profile, uri: str) -> str | None:
    """The server that lists `uri`, else the one that has a template for it, else the only one that has
    resources at all: some servers list none of those that they have."""
    offer = view.offer
    if (resource := offer.resources.get(uri)) is not None:
        return resource.server
    if (template := offer.templates.get(uri)) is not None:
        return template.server
    for pattern, item in offer.templates.items():
        if matches(pattern, uri):
            return item.server
    owners = {item.server for item in (*offer.resources.values(), *offer.templates.values())}
    return owners.pop() if len(owners) == 1 else None
