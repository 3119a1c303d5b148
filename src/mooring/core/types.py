"""Values of the catalog: tools, resources, prompts, snapshots, results, server status."""

from __future__ import annotations

from binascii import a2b_base64
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from mooring.core.text import line
from mooring.core.value import Value, field

if TYPE_CHECKING:
    from mooring.core.transforms import ToolShape
    from mooring.errors import MooringError


Json = Any
"""A JSON value: `Any`, because a recursive alias makes indexing into it harder."""

EMPTY: Mapping[str, Any] = MappingProxyType({})


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


State = Literal["connected", "pending", "failed", "needs-auth", "disabled"]
Verb = Literal["call", "prompt"]
"""What calling a tool does: call it on its server, or get a prompt of the server."""

Era = Literal["modern", "legacy"]
PROTOCOLS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Protocol versions that mooring supports."""
"""Protocol era of a connection: stateless (2026-07-28) or with a handshake (all versions before)."""


class Tool(Value):
    """One tool. Inside a `Snapshot`, `name` is the provider's own name; in a `Catalog`, the local name."""

    name: str
    """Name of the tool: the server's own in a `Snapshot`, the local name in a `Catalog`."""
    server: str
    """Id of the provider that runs it: the server's name in the configuration."""
    remote_name: str
    """The server's own name of the tool, used in requests."""
    title: str | None = None
    """Name for people."""
    description: str = ""
    """The server's description, for the model."""
    input_schema: Mapping[str, Any] = field(default={"type": "object"})
    """JSON Schema, verbatim."""
    output_schema: Mapping[str, Any] | None = None
    """JSON Schema of `structured` in results; None when the server declares none."""
    annotations: Mapping[str, Any] = EMPTY
    """The server's hints (`readOnlyHint` …). Untrusted."""
    meta: Mapping[str, Any] = EMPTY
    """The `_meta` of the definition."""
    extra: Mapping[str, Any] = EMPTY
    """Unknown fields of the definition, passed through."""
    verb: Verb = "call"
    """`prompt` for a tool that returns a prompt of the server instead of calling a tool."""
    shape: ToolShape | None = field(default=None, shown=False)
    """The transform of the configuration, if there is one; it holds the server's own definition."""

    @property
    def own_name(self) -> str:
        """Its name without the part of the server: that of its transform, or else the server's own."""
        return self.remote_name if self.shape is None else self.shape.name


class ToolCall(Value):
    """A call that is about to be made, for guards and `decide`."""

    server: str
    """Id of the provider."""
    tool: str
    """The server's own name of the tool."""
    name: str
    """The name of the tool in the catalog."""
    arguments: Mapping[str, Any]
    """As the server gets them."""
    annotations: Mapping[str, Any] = EMPTY
    """The hints of the tool."""
    session: str = ""
    """Id of the session; for clients of a gateway a hash of it."""
    agent: str | None = None
    principal: str | None = None
    """Authenticated user; None if there is none."""
    profile: str | None = None
    """Profile of the gateway; None outside of a gateway."""

    def __repr__(self) -> str:
        """Show the names of the arguments only: their values may hold secrets."""
        names = sorted(self.arguments)
        return f"ToolCall({self.server!r}, {self.tool!r}, arguments={names}, principal={self.principal!r})"


class Resource(Value):
    """A resource that a server lists."""

    uri: str
    """Address of the resource."""
    server: str
    """Name of the server in the configuration."""
    name: str
    """The server's name of it."""
    title: str | None = None
    """Name for people."""
    description: str = ""
    """The server's description."""
    mime_type: str | None = None
    """MIME type, if the server says it."""
    size: int | None = None
    """Bytes, if the server says it."""
    extra: Mapping[str, Any] = EMPTY
    """Unknown fields of the definition, passed through."""


class ResourceTemplate(Value):
    """A URI pattern of resources that a server can read."""

    uri_template: str
    """URI template (RFC 6570)."""
    server: str
    """Name of the server in the configuration."""
    name: str
    """The server's name of it."""
    title: str | None = None
    """Name for people."""
    description: str = ""
    """The server's description."""
    mime_type: str | None = None
    """MIME type of all matching resources, if the server says it."""
    extra: Mapping[str, Any] = EMPTY
    """Unknown fields of the definition, passed through."""


class Prompt(Value):
    """A prompt of a server."""

    name: str
    """Name of the prompt: the server's own in a `Snapshot`, the local name in a `Catalog`."""
    server: str
    """Name of the server in the configuration."""
    title: str | None = None
    """Name for people."""
    description: str = ""
    """The server's description."""
    arguments: tuple[Mapping[str, Any], ...] = ()
    """Each `{"name", "description"?, "required"?}`, as the server sent it."""
    extra: Mapping[str, Any] = EMPTY
    """Unknown fields of the definition, passed through."""


class Extension(Value):
    """An extension of the protocol that a server declares."""

    name: str
    """Identifier, such as `io.modelcontextprotocol/ui`."""
    server: str
    """Name of the server in the configuration."""
    settings: Mapping[str, Any] = EMPTY
    """Settings of the server for this extension."""


class SkillFile(Value):
    """A file in the manifest of a skill."""

    uri: str
    """Address of the file."""
    digest: str
    """`sha256:` and 64 hexadecimal digits."""
    size: int
    """Bytes."""


class Skill(Value):
    """Instructions of a server for a task: a `SKILL.md` and its supporting files. Untrusted."""

    name: str
    """The server's own name in a `Snapshot`; `<server>/<name>` in a `Catalog`."""
    server: str
    """Name of the server in the configuration."""
    uri: str
    """Address of its `SKILL.md`."""
    description: str = ""
    """The server's description."""
    frontmatter: Mapping[str, Any] = EMPTY
    """The head of `SKILL.md`, as the server lists it."""
    files: tuple[SkillFile, ...] | None = ()
    """All its files with digest and size; None if the server generates them, so that they cannot be
    verified."""
    extra: Mapping[str, Any] = EMPTY
    """Unknown fields of the entry, passed through."""


class Page(Value):
    """The approved state of a page of an MCP App."""

    uri: str
    """Its `ui://` address."""
    server: str
    """Name of the server in the configuration."""
    digest: str
    """SHA-256 of the page, as hexadecimal digits."""
    csp: str = ""
    """Content security policy that its metadata asks for."""
    permissions: tuple[str, ...] = ()
    """Browser permissions that its metadata asks for."""


class Group(Value):
    """A group of related tools: one per server, plus those that the application declares."""

    id: str
    """`mcp:<server>` for servers."""
    title: str
    """Name for people."""
    description: str
    """One sentence about the tools."""
    instructions: str | None = None
    """The server's instructions for using the tools."""
    members: tuple[str, ...] = ()
    """Local tool names."""


class ServerInfo(Value):
    """The server's description of itself, for display only."""

    name: str | None = None
    title: str | None = None
    version: str | None = None
    description: str | None = None
    protocol: str | None = None
    """Negotiated protocol version, such as `2026-07-28`."""
    chosen: bool = False
    """Whether mooring asked for this version although the server may support a newer one."""
    capabilities: Mapping[str, Any] = EMPTY


class Snapshot(Value):
    """The lists of one server or provider at one time."""

    server: str
    """Name of the server in the configuration, or id of the provider."""
    info: ServerInfo = ServerInfo()
    """The server's description of itself."""
    instructions: str | None = None
    """The server's instructions for the model."""
    tools: tuple[Tool, ...] = ()
    """Tools in the order of the server's list."""
    resources: tuple[Resource, ...] = ()
    """Listed resources."""
    templates: tuple[ResourceTemplate, ...] = ()
    """Resource templates."""
    prompts: tuple[Prompt, ...] = ()
    """Prompts."""
    extensions: tuple[Extension, ...] = ()
    """Extensions of the protocol that the server declares."""
    skills: tuple[Skill, ...] = ()
    """Skills, without the contents of their files."""
    pages: tuple[Page, ...] | None = None
    """Pages of its tools; None if they were not read. Only `mooring lock`, `check` and `approve` read all."""
    groups: tuple[Group, ...] = ()
    """Groups that the provider declares, with its own tool names. Servers declare none: the catalog makes
    one group for each."""
    repeated: tuple[str, ...] = ()
    """Names of tools that the server lists more than once, where only the first one is in `tools`."""
    warnings: tuple[str, ...] = ()
    """Items that were left out of the lists, each with the reason."""


class Block(Value):
    """One content block of a result.

    The JSON object is checked when the result arrives, so that reading the properties never fails.
    """

    raw: Mapping[str, Any]
    """The JSON object as the server sent it."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.__dict__["raw"] = raw

    @property
    def type(self) -> str:
        """`text`, `image`, `audio`, `resource_link`, `resource`, or a type of a newer protocol."""
        return self.raw["type"]

    @property
    def text(self) -> str | None:
        """Text of a text block or of an embedded text resource."""
        if self.type == "resource":
            return self.raw["resource"].get("text")
        return self.raw.get("text") if self.type == "text" else None

    @property
    def data(self) -> str | None:
        """Base64 of an image, an audio clip or an embedded binary resource."""
        if self.type == "resource":
            return _text(self.raw["resource"].get("blob"))
        return self.raw.get("data") if self.type in ("image", "audio") else None

    @property
    def mime_type(self) -> str | None:
        return _text((self.raw["resource"] if self.type == "resource" else self.raw).get("mimeType"))

    @property
    def uri(self) -> str | None:
        return _text((self.raw["resource"] if self.type == "resource" else self.raw).get("uri"))


class Contents(Value):
    """Contents of one resource, in one or more blocks."""

    uri: str
    """Address that was read."""
    server: str
    """Name of the server in the configuration."""
    blocks: tuple[Block, ...] = ()
    """Of type `resource`, each with its own `uri`, `mime_type`, and `text` or `data`."""

    @property
    def text(self) -> str:
        """The texts, joined by newlines."""
        return "\n".join(text for block in self.blocks if (text := block.text) is not None)

    @property
    def data(self) -> bytes:
        """The bytes of the binary blocks, joined."""
        return b"".join(a2b_base64(data) for block in self.blocks if (data := block.data) is not None)

    @property
    def is_binary(self) -> bool:
        return any(block.data is not None for block in self.blocks)


class Message(Value):
    """One message of a prompt."""

    role: str
    """`user` or `assistant`."""
    block: Block
    """The content."""

    @property
    def text(self) -> str | None:
        return self.block.text


class Result(Value):
    """Outcome of a call, which a model can always read, also if the call failed."""

    server: str
    """Name of the server; empty when the tool is unknown."""
    tool: str
    """The server's own name of the tool."""
    blocks: tuple[Block, ...] = ()
    """The content."""
    structured: Json = None
    """The structured content (JSON); None when the tool returned none."""
    is_error: bool = False
    """Whether the call or the tool failed. `text` then says why."""
    duration: float = 0.0
    """Seconds, from the call to its end."""
    meta: Mapping[str, Any] = EMPTY
    """The `_meta` of the response."""
    handle: str | None = None
    """Handle for `result_read` when the output was too large to show; else None."""
    error: MooringError | None = None
    """Why the tool did not answer; None if it answered, also with an error."""
    raw: Mapping[str, Any] | None = field(default=None, shown=False, compare=False)
    """The server's response, including unknown fields."""

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(text for block in self.blocks if (text := block.text) is not None)

    @property
    def content(self) -> list[Mapping[str, Any]]:
        """The blocks as JSON objects."""
        return [block.raw for block in self.blocks]


class Absence(Value):
    """Why a tool may be missing: the server that would own its name is not connected."""

    server: str
    state: State
    hint: str
    """What to do about it."""


class ServerStatus(Value):
    """Current state of one server."""

    name: str
    """Name of the server in the configuration."""
    state: State
    """`connected`, `pending`, `failed`, `needs-auth` or `disabled`."""
    transport: str
    """`stdio`, `http`, `streamable-http` or `sse`."""
    protocol: str | None = None
    """Negotiated protocol version; None while not connected."""
    tools: int = 0
    """Number of tools that the server lists, before `allow` and `deny`."""
    resources: int = 0
    """Number of resources."""
    prompts: int = 0
    """Number of prompts."""
    extensions: tuple[str, ...] = ()
    """Identifiers of the extensions that it declares."""
    skills: int = 0
    """Number of skills."""
    error: str | None = None
    """Why it is not connected, and what to do next."""
    connected_at: float | None = None
    """Seconds since the epoch."""
    breaker: str = "closed"
    """Circuit breaker: `closed`, `open` (calls fail at once) or `half-open` (one call is tried)."""
    retry_in: float | None = None
    """Seconds until the next connection attempt; None when connected or when a person must act first."""
    fresh_within: float | None = None
    """Seconds within which any change of its lists is noticed: the time between two listings. None while a
    listing is overdue."""
    announced_within: float | None = None
    """Seconds within which a change is noticed that a stdio server announces. None until it has announced
    changes of all its lists on this connection, and after one that it did not announce; None for others."""
    warnings: tuple[str, ...] = ()
    """Problems with the server's lists and configuration."""


class CachedSnapshot:
    """A snapshot from the cache, built on first use: a thousand tools take a while, and most servers are
    connected before it is needed."""

    def __init__(
        self,
        make: Callable[[], Snapshot],
        *,
        protocol: str | None,
        tools: int,
        templates: int,
        prompts: int,
        extensions: tuple[Extension, ...],
    ) -> None:
        self._make = make
        self.protocol, self.extensions = protocol, extensions
        self.tools, self.templates, self.prompts = tools, templates, prompts
        """Numbers of each."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> CachedSnapshot:
        """Return a cached snapshot around one that is already built."""
        return cls(
            lambda: snapshot,
            protocol=snapshot.info.protocol,
            tools=len(snapshot.tools),
            templates=len(snapshot.templates),
            prompts=len(snapshot.prompts),
            extensions=snapshot.extensions,
        )

    @cached_property
    def snapshot(self) -> Snapshot:
        """The snapshot, built on first use."""
        return self._make()


HiddenBy = Literal["lock", "policy", "filter", "transform", "trust", "visibility"]
"""`lock`: differs from the approved definition. `policy`: a rule denies it. `filter`: `allow` or `deny` of
its server. `transform`: its transform hides it or does not fit it. `trust`: the file that configures the
server is not approved, so the server is not started. `visibility`: its server keeps it for its own pages."""

MOST_LISTED = 100
_MOST_NAMES = 8
_LONGEST = 80
_REMEDY: dict[HiddenBy, str] = {
    "lock": "review with `mooring check`, accept with `mooring approve {server}`",
    "trust": "review and accept with `mooring trust`",
}


HiddenKind = Literal["server", "tool", "resource", "template", "prompt", "skill"]


class Hidden(Value):
    """A tool, resource, template, prompt or whole server that is hidden."""

    server: str
    kind: HiddenKind
    name: str | None
    """The server's own name of the tool or prompt, or the URI; None for a whole server."""
    by: HiddenBy
    reason: str

    @property
    def tool(self) -> str | None:
        """The server's own name of the tool; None for anything else."""
        return self.name if self.kind == "tool" else None


def hidden_document(
    hidden: Sequence[Hidden], redact: Callable[[str], str], *, details: bool
) -> dict[str, Any]:
    """Return the document for `/ready`: counts by cause and kind; with `details` also the first 100 tools,
    resources and prompts. A whole server is listed with the tools; templates with the resources."""
    document: dict[str, Any] = {
        "count": len(hidden),
        "by": dict(sorted(Counter(one.by for one in hidden).items())),
        "kinds": dict(sorted(Counter(one.kind for one in hidden).items())),
    }
    kinds = {"tool": ("server", "tool"), "resource": ("resource", "template"), "prompt": ("prompt",)}
    for label, members in kinds.items() if details else ():
        document[f"{label}s"] = [
            {
                "server": one.server,
                label: None if one.name is None else line(redact(one.name), _LONGEST),
                "by": one.by,
                "reason": line(redact(one.reason), 2 * _LONGEST),
            }
            for one in [one for one in hidden if one.kind in members][:MOST_LISTED]
        ]
    return document


def hidden_lines(hidden: Iterable[Hidden]) -> list[tuple[HiddenBy, str]]:
    """Return a sentence for each server and cause, with the first names and what to do."""
    groups: dict[tuple[str, HiddenBy], list[Hidden]] = {}
    for one in hidden:
        groups.setdefault((one.server, one.by), []).append(one)
    return [(by, _sentence(server, by, found)) for (server, by), found in groups.items()]


def _sentence(server: str, by: HiddenBy, found: Sequence[Hidden]) -> str:
    remedy = f"; {_REMEDY[by].format(server=server)}" if by in _REMEDY else ""
    if found[0].kind == "server":
        return f"Server {server!r} is not started ({by}): {found[0].reason}{remedy}"
    named = ", ".join(f"{line(one.name or '', _LONGEST)} ({one.reason})" for one in found[:_MOST_NAMES])
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    counts = Counter(one.kind for one in found)
    what = ", ".join(f"{number} {kind}{'' if number == 1 else 's'}" for kind, number in counts.items())
    return f"{what} of server {server!r} hidden by the {by}: {named}{more}{remedy}"
