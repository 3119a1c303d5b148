"""Local tool names: (server, remote name) -> a name that every model provider accepts."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Literal, get_args

from mooring.core.text import did_you_mean
from mooring.core.value import Value
from mooring.errors import ConfigError

# Letters of other scripts, and digits, that look like Latin ones in common typefaces.
_ALIKE = str.maketrans(
    "аьсԁеһіјӏкԛмопрѕԝхугвтнзαβεηικνορτυχωγμζ01|ıɑɡß",
    "abcdehijlkqmonpswxyrbth3abenikvoptuxwyuzolliagb",
)
_JOINT = r"[\W_]+"


@lru_cache(1024)
def skeleton(name: str) -> str:
    """Return a form that is equal for names that look alike: without case, accents, width and punctuation."""
    bare = name.lower() if name.isascii() else _bare(name)
    return (
        re.sub(_JOINT, "_", bare.translate(_ALIKE)).strip("_").replace("rn", "m").replace("vv", "w") or name
    )


def latin(text: str) -> str:
    """Return the text with look-alike letters replaced by Latin ones, without case and accents."""
    return _bare(text).translate(_ALIKE)


def _bare(name: str) -> str:
    from unicodedata import combining, normalize

    plain = normalize("NFKD", normalize("NFKC", name).casefold())
    return "".join(letter for letter in plain if not combining(letter))


def look_alikes(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that looks like an earlier one, after that one.

    Names that differ only in case or punctuation, such as `a-b` and `A_b`, are not look-alikes: the
    difference is visible.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(skeleton(name), name)
        if _letters(other) != _letters(name):
            yield other, name


def _letters(name: str) -> str:
    return re.sub(_JOINT, "_", name.lower())


Style = Literal["mcp", "double", "server", "raw"]
"""`mcp_<server>_<tool>`, `mcp__<server>__<tool>`, `<server>_<tool>`, `<tool>`."""

STYLES: tuple[Style, ...] = get_args(Style)


def checked_style(given: Style | None) -> Style | None:
    """Return `given`.

    Raises:
        ConfigError: it is not one of the styles.
    """
    if given is None or given in STYLES:
        return given
    near = did_you_mean(str(given), STYLES)
    hint = f"; did you mean {near!r}?" if near else ""
    raise ConfigError(f"style must be 'mcp', 'double', 'server' or 'raw', not {given!r}{hint}")


LIMIT = 64
"""Longest name that all known model providers accept."""

OWNER = "mooring"
"""Server id of mooring's own tools, reserved."""

RESERVED = frozenset(
    (
        *("tools_groups", "tools_search", "tools_select", "tools_call", "result_read"),
        *("script_api", "script_run"),
        *("list_mcp_resources", "read_mcp_resource"),
    )
)
"""Names of mooring's own tools."""

AUTHENTICATE = "authenticate"
"""Name of the tool that starts a login. A server's own tool of that name gets a suffix."""

LOGIN = f"{OWNER}/{AUTHENTICATE}"
"""Remote name of that tool, reserved."""

Pair = tuple[str, str]

_HEAD = 24
"""Characters kept at the front of a name that is cut. The end is kept too, because tools differ there."""
_NOT_LOWER = re.compile(r"[^a-z0-9_]")
_NOT_MIXED = re.compile(r"[^a-zA-Z0-9_-]")
_MEANING = re.compile(r"[a-zA-Z0-9]")
_HASHED = re.compile(r"_(?:[0-9a-f]{8}|[0-9a-f]{16}|[0-9a-f]{32})$")
_NO_SERVERS: frozenset[str] = frozenset()


class Claim(Value):
    """Names of the tools of one server if there were no other server."""

    names: dict[str, str]
    """By remote name."""
    marked: frozenset[str]
    """Tools whose name already has a hash."""


def claim(server: str, tools: Iterable[str], style: Style) -> Claim:
    """Return the names that the tools of a server would have without other servers."""
    start = prefix(server, style) if style == "raw" or _MEANING.search(server) else None
    names: dict[str, str] = {}
    marked: list[str] = []
    for tool in tools:
        name = _plain(start, tool, style)
        if name is None:
            marked.append(tool)
            name = _hashed((server, tool), style, 1)
        names[tool] = name
    return Claim(names=names, marked=frozenset(marked))


def settle(
    claims: Mapping[str, Claim], style: Style, configured: frozenset[str] = _NO_SERVERS
) -> dict[str, dict[str, str]]:
    """Return the local names of all tools, by server and remote name: distinct, valid, at most 64 characters.

    `configured` names all servers there may be, connected or not; those with claims count in any case.
    The order of the servers matters in style `raw` only: there the same name from two servers goes to
    the server given last, and is absent from the names of the others.
    """
    if style == "raw":
        alone = {server: _distinct({server: one}, style)[server] for server, one in claims.items()}
        winners = {name: server for server, names in alone.items() for name in names.values()}
        return {
            server: {tool: name for tool, name in names.items() if winners[name] == server}
            for server, names in alone.items()
        }
    return _distinct(claims, style, _contested(claims, style, configured.union(claims)))


def assign(pairs: Iterable[Pair], style: Style, configured: frozenset[str] = _NO_SERVERS) -> dict[Pair, str]:
    """Return the local name of each (server, remote name); see `settle`."""
    by_server: dict[str, list[str]] = {}
    for server, tool in pairs:
        by_server.setdefault(server, []).append(tool)
    claims = {server: claim(server, tools, style) for server, tools in by_server.items()}
    settled = settle(claims, style, configured)
    return {(server, tool): name for server, names in settled.items() for tool, name in names.items()}


def prefix(server: str, style: Style) -> str:
    """Return the prefix of the plain local names of a server's tools."""
    if style == "raw":
        return ""
    segment = _reduced(_ends(server), style)
    if style == "mcp":
        return f"mcp_{segment}_"
    if style == "double":
        return f"mcp__{segment}__"
    return f"{segment}_" if segment[:1].isalpha() or segment[:1] == "_" else f"_{segment}_"


def reserved_clashes(server: str, tools: Iterable[str], style: Style) -> list[str]:
    """Return the tools of a server whose name would equal one of mooring's own."""
    start = prefix(server, style)
    if not any(name.startswith(start) for name in RESERVED):
        return []
    return [tool for tool in tools if start + _reduced(tool[:LIMIT], style) in RESERVED]


def may_belong(name: str, server: str, style: Style) -> bool:
    """Return whether a tool of this server could have this local name."""
    return name.startswith(prefix(server, style)[:_HEAD])


def _contested(claims: Mapping[str, Claim], style: Style, configured: frozenset[str]) -> list[Pair]:
    """Return the tools whose plain name another configured server could own, connected or not."""
    found: list[Pair] = []
    prefix_conflicts = _prefix_conflicts(configured, style)
    for server in prefix_conflicts.keys() & claims.keys():
        owners, near = prefix_conflicts[server]
        one = claims[server]
        found += (
            (server, tool)
            for tool, name in one.names.items()
            if tool not in one.marked
            # A name that ends like a hashed one may be the hashed name of another server's tool.
            and (name.startswith(owners) or (name.startswith(near) and _HASHED.search(name)))
        )
    return found


@lru_cache(16)
def _prefix_conflicts(
    configured: frozenset[str], style: Style
) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the conflicts of each server with others: the prefixes that win over its own (equal or longer
    ones), and the beginnings of prefixes that its names could start with. Servers without conflicts are left
    out."""
    starts = {server: prefix(server, style) for server in configured}
    found: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for server, start in starts.items():
        others = [other for name, other in starts.items() if name != server]
        heads = (other[:_HEAD] for other in others)
        near = tuple(head for head in heads if head.startswith(start[:_HEAD]) or start.startswith(head))
        if near:
            found[server] = (tuple(other for other in others if other.startswith(start)), near)
    return found


def _distinct(
    claims: Mapping[str, Claim], style: Style, contested: Iterable[Pair] = ()
) -> dict[str, dict[str, str]]:
    """Return names, all different, that depend on the set of claims but not on its order."""
    wanted = {server: one.names for server, one in claims.items()}
    different = set[str]().union(*(names.values() for names in wanted.values()))
    if len(different) == sum(map(len, wanted.values())) and not contested:
        return wanted
    names = {(server, tool): name for server, own in wanted.items() for tool, name in own.items()}
    levels = dict.fromkeys(((server, tool) for server, one in claims.items() for tool in one.marked), 1)
    _separate(names, levels, style)
    for pair in contested:
        if levels.setdefault(pair, 1) == 1:
            names[pair] = _hashed(pair, style, 1)
    _separate(names, levels, style)
    return {server: {tool: names[server, tool] for tool in own} for server, own in wanted.items()}


def _separate(names: dict[Pair, str], levels: dict[Pair, int], style: Style) -> None:
    """Give all tools that share a name longer and longer hashes until no two share one."""
    while clashes := _clashes(names):
        for group in clashes:
            # Names without a hash change first: a plain name never moves a hashed one, or a server could
            # rename another's tool by guessing its hash.
            lowest = min(levels.get(pair, 0) for pair in group)
            for pair in group:
                if levels.get(pair, 0) == lowest:
                    levels[pair] = lowest + 1
                    names[pair] = _hashed(pair, style, lowest + 1)


def _plain(start: str | None, tool: str, style: Style) -> str | None:
    """Return the name without a suffix, or None if it needs one."""
    if tool == LOGIN:
        tool = AUTHENTICATE
    elif _looks_like_login(tool):
        return None
    if start is None or len(start) + len(tool) > LIMIT or not _MEANING.search(tool):
        return None
    name = start + _reduced(tool, style)
    # Lower-casing can lengthen a name: check the limit on the result.
    if len(name) > LIMIT or name in RESERVED or keyword.iskeyword(name):
        return None
    return name


def _looks_like_login(tool: str) -> bool:
    """Whether a server's tool could be mistaken for the one that starts a login."""
    if len(tool) < len(AUTHENTICATE):  # fast path: there may be 10,000 tools
        return False
    if tool.isascii():
        return tool.strip("_-./: ").lower() == AUTHENTICATE
    return skeleton(tool) == AUTHENTICATE


def _reduced(segment: str, style: Style) -> str:
    """Return the segment with every character that providers reject replaced by `_`."""
    if style == "mcp":
        segment = segment.lower()
    if segment.isascii() and segment.isidentifier():  # fast path: `sub` takes ten times as long
        return segment
    return (_NOT_LOWER if style == "mcp" else _NOT_MIXED).sub("_", segment)


def _clashes(names: Mapping[Pair, str]) -> list[list[Pair]]:
    holders: dict[str, list[Pair]] = {}
    for pair, name in names.items():
        holders.setdefault(name, []).append(pair)
    return [group for group in holders.values() if len(group) > 1]


def _hashed(pair: Pair, style: Style, level: int) -> str:
    """Return the name with a hash suffix: 8 hex digits at level 1, then 16, then 32."""
    server, tool = pair
    seed = f"{len(server)}:{level}:{server}{tool}".encode("utf-8", "surrogatepass")
    digest = sha256(seed).hexdigest()[: 4 << level]
    base = prefix(server, style) + _reduced(_ends(tool), style).rstrip("_-") or "tool"
    room = LIMIT - len(digest) - 1
    if len(base) > room:
        base = f"{base[:_HEAD]}_{base[_HEAD + 1 - room :]}"
    return base + digest if base.endswith("_") else f"{base}_{digest}"


def _ends(text: str) -> str:
    """Return the text; of a very long one only both ends, because its middle is cut out later."""
    return text if len(text) <= 4 * LIMIT else text[: 2 * LIMIT] + text[-2 * LIMIT :]


# --- for applications


def build_tool_name(server: str, tool: str, style: Style = "double") -> str:
    """Return the local name of a server's tool, such as `mcp__github__create_issue`.

    It is the name that the catalog has, unless another tool claims the same one: then the catalog adds a hash
    to both. Names of more than 64 characters are cut and get a hash. `authenticate` is the tool that begins a
    login.

    Raises:
        ConfigError: the style is unknown.
    """
    pair = (server, LOGIN if tool == AUTHENTICATE else tool)
    return assign([pair], checked_style(style) or "double")[pair]


def parse_tool_name(name: str) -> Pair | None:
    """Return the server and the tool in a name of style `double`; None for any other name.

    The inverse of `build_tool_name` for names that it neither cut nor reduced to other characters, and for
    servers whose names neither contain `__` nor end with `_`.
    """
    head, _, rest = name.partition("__")
    server, _, tool = rest.partition("__")
    return (server, tool) if head == "mcp" and server and tool else None


def tool_name_prefix(server: str, style: Style = "double") -> str:
    """Return the prefix of the names of a server's tools, such as `mcp__github__`; empty in style `raw`."""
    return prefix(server, checked_style(style) or "double")


def normalize_name(name: str) -> str:
    """Return a server's or tool's name in the characters that every provider accepts: 1 to 64 of
    `a-z A-Z 0-9 _ -`, every other character as `_`."""
    return _NOT_MIXED.sub("_", name)[:LIMIT] or "_"
