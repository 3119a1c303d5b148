"""The skills of all servers: list them, and read them for a model after the checks of the extension."""

from __future__ import annotations

import time
from abc import abstractmethod
from binascii import a2b_base64
from collections.abc import Mapping
from typing import Any

from mooring.core.builtin_tools import READ_SKILL
from mooring.core.discovery import OWNER
from mooring.core.extensions import SKILLS, declared
from mooring.core.skills import InvalidSkillError, altered, changed_field, entries_of, file_of, frontmatter
from mooring.core.text import line, nearest, quote
from mooring.core.types import EMPTY, Block, Contents, Group, Result, Skill, SkillFile, Snapshot, Tool
from mooring.core.uris import scheme_of
from mooring.errors import CallError, ToolChanged
from mooring.local import Progress, StaticProvider
from mooring.resources import BUILTIN, Resources, ResourceTools
from mooring.servers.catalog import CatalogBuilder

__all__ = ["BuiltinTools", "SkillVerbs", "Skills"]

MOST_LISTED = 100
_LINE = 200

TOOL = Tool(
    name=READ_SKILL,
    server=OWNER,
    remote_name=READ_SKILL,
    description="Read a skill: the instructions of an MCP server for a task. Without a name, list the "
    "skills. With 'file', read a supporting file that the instructions mention, by its path relative to the "
    "skill.",
    input_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Name of the skill, as the list shows it"},
            "file": {"type": "string", "description": "Path of a supporting file of the skill"},
        },
        "additionalProperties": False,
    },
    annotations={"readOnlyHint": True},
)


class Skills:
    """Lists and reads the skills of the servers of a host.

    Files are read only on request, from the server that listed the skill, and only those in its manifest.
    """

    def __init__(self, catalog: CatalogBuilder, resources: Resources) -> None:
        self._builder, self._resources = catalog, resources
        self._refused: dict[tuple[str, str], Skill] = {}
        """Skills of which a file contradicted the list, until they are listed differently."""

    def list(self) -> tuple[Skill, ...]:
        """Implement `Host.skills`."""
        return self._builder.catalog.skills

    def servers(self) -> frozenset[str]:
        """Return the servers that declare skills."""
        return frozenset(one.server for one in self._builder.catalog.extensions if one.name == SKILLS)

    def find(self, name: str) -> Skill:
        """Return the skill of this name.

        Raises:
            CallError: There is none, or several servers have one.
        """
        known = {skill.name: skill for skill in self.list()}
        if name in known:
            return known[name]
        same = [one for one in known.values() if name in (own := _own_name(one), f"{one.server}/{own}")]
        if len(same) == 1:
            return same[0]
        if same:
            shown = ", ".join(sorted(one.name for one in same))
            raise _not_read(name, f"several skills have that name; use one of {shown}")
        if (withheld := self._builder.pins.explain_skill(name)) is not None:
            raise withheld
        near = ", ".join(nearest(name, known))
        hint = f"; did you mean {near}?" if near else "" if known else "; no server has skills"
        raise _not_read(name, f"there is no such skill{hint}")

    async def located(self, name: str, timeout: float | None) -> Skill:
        """Return the skill of this name; servers that have not been listed yet are connected if needed.

        Raises:
            CallError: There is none, or several servers have one.
        """
        try:
            return self.find(name)
        except CallError:
            if not await self._resources.list_missing(name.partition("/")[0], timeout):
                raise
        return self.find(name)

    async def read(self, skill: Skill, file: str | None = None, timeout: float | None = None) -> Contents:
        """Return a file of a skill (default: its `SKILL.md`) after the checks.

        Raises:
            CallError: The file is not in the manifest, or its contents contradict the list.
            MooringError: The server did not answer.
        """
        uri, listed = self._file(skill, file)
        contents = await self._resources.read_fresh(uri, skill.server, timeout=timeout)
        # The read may have started the server: what it lists now counts, not what was known before.
        here = (skill.server, skill.uri)
        if (current := next((one for one in self.list() if (one.server, one.uri) == here), skill)) != skill:
            skill, (uri, listed) = current, self._file(current, file)
        if uri == skill.uri or listed is not None:
            self._checked(skill, uri, listed, contents)
        return contents

    def check_address(
        self, server: str, uri: str, *, of_skill: bool = False
    ) -> tuple[tuple[Skill, SkillFile | None], ...]:
        """Return the skills that have this address of a server as a file, with its manifest entries; none if
        it is a resource of another kind.

        Args:
            server: The server that would be asked.
            uri: Its own address.
            of_skill: Whether the caller used it as the address of a skill, whatever its scheme.

        Raises:
            CallError: It may not be read: no manifest has exactly this address, and it is in the directory of
                a skill, or it is a `skill` address of a server that declares skills.
            ToolChanged: A file of the skill was not the listed one.
        """
        try:
            found = entries_of((one for one in self.list() if one.server == server), uri)
        except InvalidSkillError as problem:
            raise _unlisted(uri, str(problem), server) from None
        if found is None:
            if (of_skill or scheme_of(uri) == "skill") and self._declares(server):
                raise _unlisted(uri, f"no skill that {server!r} lists has a file of this address", server)
            return ()
        for skill, _ in found:
            self._check_unaltered(skill)
        return found

    def check_contents(
        self, found: tuple[tuple[Skill, SkillFile | None], ...], uri: str, contents: Contents
    ) -> None:
        """Check what was read for the entries of `check_address`, and remember a contradiction.

        Raises:
            ToolChanged: It contradicts the list of the server.
        """
        for skill, listed in found:
            if uri == skill.uri or listed is not None:
                self._checked(skill, uri, listed, contents)

    def _declares(self, server: str) -> bool:
        """Whether a server declares skills, approved or not."""
        snapshot = self._builder.snapshot(server)
        offered = () if snapshot is None else declared(server, snapshot.info.capabilities)
        every = (*offered, *self._builder.catalog.extensions)
        return any((one.server, one.name) == (server, SKILLS) for one in every)

    def _checked(self, skill: Skill, uri: str, listed: SkillFile | None, contents: Contents) -> None:
        try:
            _check_file(skill, uri, listed, contents)
        except ToolChanged:
            self._refused[(skill.server, skill.uri)] = skill
            raise

    def _check_unaltered(self, skill: Skill) -> None:
        if self._refused.get((skill.server, skill.uri)) == skill:
            raise _altered(skill, "one of its files was not the listed one, so none of them is read")

    def _file(self, skill: Skill, file: str | None) -> tuple[str, SkillFile | None]:
        """Return the address and the manifest entry of a file that may be read."""
        self._check_unaltered(skill)
        try:
            return file_of(skill, file)
        except InvalidSkillError as problem:
            raise _not_read(skill.name, str(problem), skill.server) from None


def _check_file(skill: Skill, uri: str, listed: SkillFile | None, contents: Contents) -> None:
    """Check what was read for a file of a skill.

    Raises:
        ToolChanged: It contradicts the list of the server.
    """
    where = line(uri, 200)
    data = _bytes(contents)
    if data is None:
        raise _altered(skill, f"{where!r} was sent in several parts")
    if listed is not None and (problem := altered(listed, data)) is not None:
        raise _altered(skill, f"{where!r} was not used: {problem}")
    if uri == skill.uri and (field := _other_field(skill, data)) is not None:
        raise _altered(skill, f"{where!r} was not used: its {field!r} differs from the list of skills")


class SkillVerbs:
    """The verb of `Session` for skills."""

    __slots__ = ()

    @abstractmethod
    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Result:
        """See `Session.call`."""

    async def read_skill(self, name: str, file: str | None = None, *, timeout: float | None = None) -> Result:
        """Read a skill for the model: its `SKILL.md`, or one of its supporting files.

        Size and digest are compared with the list of the server, and the head of `SKILL.md` with the listed
        one. The text is tagged as text of its server.

        Args:
            name: The name from `Host.skills`; without the server if only one server has a skill of that name.
            file: Path of a supporting file, relative to the skill. Default: its `SKILL.md`.
            timeout: Seconds for the whole request. Default: `call_timeout` of the server.
        """
        given = {"name": name} if file is None else {"name": name, "file": file}
        return await self.call(READ_SKILL, given, timeout=timeout)


class BuiltinTools(StaticProvider):
    """The provider of mooring's own tools that read from servers. The catalog shows those that have
    something to read."""

    name = OWNER

    def __init__(self, resources: Resources, skills: Skills) -> None:
        self._resources, self._skills = ResourceTools(resources), skills

    @property
    def snapshot(self) -> Snapshot:
        group = Group(
            id=self.name,
            title="Resources and skills of MCP servers",
            description="Find and read the resources and the skills of the MCP servers.",
            members=(*sorted(BUILTIN), READ_SKILL),
        )
        return Snapshot(server=self.name, tools=(*self._resources.snapshot.tools, TOOL), groups=(group,))

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_progress: Progress | None = None,
        meta: Mapping[str, Any] = EMPTY,
    ) -> Result:
        if tool != READ_SKILL:
            if tool == "read_mcp_resource":
                self._refuse_unchecked(arguments)
            return await self._resources.call(tool, arguments, timeout=timeout)
        started = time.monotonic()
        for name, value in arguments.items():
            if name not in TOOL.input_schema["properties"]:
                raise _not_read("", f"it has no argument {line(name, 40)!r}; it takes name and file")
            if not isinstance(value, str | None):
                raise _not_read("", f"{name!r} must be text")
        name = arguments.get("name")
        if name is None:
            blocks, structured = self._listed()
        else:
            skill = await self._skills.located(name, timeout)
            contents = await self._skills.read(skill, arguments.get("file"), timeout)
            blocks, structured = _quoted(skill, contents), None
        return Result(
            server=self.name,
            tool=tool,
            blocks=blocks,
            structured=structured,
            duration=time.monotonic() - started,
        )

    def _refuse_unchecked(self, arguments: Mapping[str, Any]) -> None:
        """Refuse to read pages and files of skills as plain resources: their checks are elsewhere."""
        uri, server = arguments.get("uri"), arguments.get("server")
        if not isinstance(uri, str):
            return
        if scheme_of(uri) == "ui":
            raise _unchecked(uri, "it is a page, which the application shows (`host.view`)")
        for skill in self._skills.list():
            if server in (None, skill.server) and _within(skill, uri):
                raise _unchecked(uri, f"it is a file of a skill; call {READ_SKILL} with name {skill.name!r}")
        owners = [server] if isinstance(server, str) else self._skills.servers()
        for owner in owners:
            self._skills.check_address(owner, uri)

    def _listed(self) -> tuple[tuple[Block, ...], dict[str, Any]]:
        found = self._skills.list()
        entries = [
            {"name": one.name, "description": line(one.description, _LINE)} for one in found[:MOST_LISTED]
        ]
        lines = [f"{entry['name']}: {entry['description']}" for entry in entries]
        if len(found) > MOST_LISTED:
            lines.append(f"There are {len(found) - MOST_LISTED} more: find them with tools_search.")
        text = quote("\n".join(lines), "MCP servers") if lines else "No server has skills."
        return (Block({"type": "text", "text": text}),), {"skills": entries}


def _within(skill: Skill, uri: str) -> bool:
    """Whether an address is in the directory of a skill, listed or not."""
    try:
        return entries_of((skill,), uri) is not None
    except InvalidSkillError:
        return True


def _own_name(skill: Skill) -> str:
    """Return the name in the head of a skill."""
    return str(skill.frontmatter.get("name", ""))


def _quoted(skill: Skill, contents: Contents) -> tuple[Block, ...]:
    """Return contents for a model, tagged with the server and the skill that they come from."""
    about = {"skill": skill.name}
    if skill.files is None:
        about["verified"] = "no"
    blocks: list[Block] = []
    for block in contents.blocks:
        if block.text is not None:
            text = quote(block.text, skill.server, **about, uri=block.uri or contents.uri)
            blocks.append(Block({"type": "text", "text": text}))
        else:
            blocks.append(block)
    return tuple(blocks) or (Block({"type": "text", "text": f"[{contents.uri} is empty.]"}),)


def _bytes(contents: Contents) -> bytes | None:
    """Return the bytes of a file; None if it was not sent as one content."""
    if len(contents.blocks) != 1:
        return None
    block = contents.blocks[0]
    if block.text is not None:
        return block.text.encode("utf-8", "surrogatepass")
    return a2b_base64(block.data or "")


def _other_field(skill: Skill, data: bytes) -> str | None:
    """Return the first field of the frontmatter in `SKILL.md` that differs from the list, or None."""
    from mooring.config.documents import BadSyntaxError, parse_yaml

    head = frontmatter(data.decode("utf-8", "replace"))
    if head is None:
        return "frontmatter"
    try:
        return changed_field(skill.frontmatter, parse_yaml(head))
    except BadSyntaxError:
        return "frontmatter"


def _not_read(name: str, problem: str, server: str = OWNER) -> CallError:
    what = f"skill {line(name, 80)!r}" if name else READ_SKILL
    return CallError(f"{what} was not read: {problem}", server=server, tool=READ_SKILL, outcome="not sent")


def _unlisted(uri: str, problem: str, server: str) -> CallError:
    text = f"{line(uri, 200)!r} was not read: {problem}. Use an address from `skills/list`"
    return CallError(text, server=server, tool=uri, outcome="not sent")


def _unchecked(uri: str, problem: str) -> CallError:
    text = f"{line(uri, 200)!r} was not read: {problem}"
    return CallError(text, server=OWNER, tool="read_mcp_resource", outcome="not sent")


def _altered(skill: Skill, problem: str) -> ToolChanged:
    return ToolChanged(
        f"Skill {skill.name!r} is not what its server listed: {problem}. Its files are not read until "
        "the server lists it differently. Review it with `mooring check`, and report it to the server's "
        "owner.",
        server=skill.server,
        tool=skill.name,
        reason="altered",
    )
