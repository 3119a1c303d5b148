"""Files of pins: `mooring.lock`, its checked form, and the last listing of servers without a lock."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from mooring.config.files import cache_home, keep, kept, read_bytes, replace_file, state_home
from mooring.config.logs import logger
from mooring.core.search import RULES, TOOL, tool_texts, weigh
from mooring.core.search_index import InvertedIndex
from mooring.core.types import (
    EMPTY,
    Extension,
    Page,
    Prompt,
    Resource,
    ResourceTemplate,
    ServerInfo,
    Skill,
    SkillFile,
    Snapshot,
    Tool,
)
from mooring.lock import Lock, LockError, Pin

if TYPE_CHECKING:
    from mooring.config.load import FoundFile
    from mooring.config.models import Scope


FORMAT = 4
"""Version of the rows. Increase it when their meaning changes."""


def write_rows(pin: Pin) -> bytes:
    """Return the bytes of a pin. Pins with the same bytes are equal."""
    from pydantic_core import to_json  # ten times faster than json

    rows = rows_of(pin)
    try:
        return to_json(rows)
    except ValueError:  # a lone surrogate, which needs an escape
        return json.dumps(rows, default=dict).encode()


def rows_of(pin: Pin) -> tuple[Any, ...]:
    """Return the rows as JSON values."""
    known, info = pin.snapshot, pin.snapshot.info
    return (
        (known.server, pin.fingerprint, known.instructions, pin.whole, sorted(pin.volatile.items())),
        (info.name, info.title, info.version, info.description, info.protocol, list(info.capabilities)),
        [
            (one.remote_name, one.title, one.description, one.input_schema, one.output_schema, *_kept(one))
            for one in known.tools
        ],
        [(one.uri, *_read(one)) for one in known.resources],
        [(one.uri_template, *_read(one)) for one in known.templates],
        [(one.name, one.title, one.description, one.arguments, one.extra or None) for one in known.prompts],
        [(one.name, one.settings) for one in known.extensions],
        [
            (
                *(one.name, one.uri, one.description, one.frontmatter),
                None if one.files is None else [(file.uri, file.digest, file.size) for file in one.files],
                one.extra or None,
            )
            for one in known.skills
        ],
        known.pages and [(one.uri, one.digest, one.csp, one.permissions) for one in known.pages],
    )


def _kept(tool: Tool) -> tuple[Any, ...]:
    return (tool.annotations or None, tool.meta or None, tool.extra or None)


def _read(one: Resource | ResourceTemplate) -> tuple[Any, ...]:
    return (one.name, one.title, one.description, one.mime_type, one.extra or None)


def read_rows(rows: bytes) -> Pin:
    """Return the pin in these bytes.

    Raises:
        ValueError: they were not written by `write_rows`.
    """
    try:
        return pin_of(json.loads(rows))
    except RecursionError as problem:
        raise ValueError(str(problem)) from None


def pin_of(rows: Any) -> Pin:
    """Return the pin of these rows.

    Raises:
        ValueError: they were not made by `rows_of`.
    """
    try:
        first, about, tools, resources, templates, prompts, extensions, skills, pages = rows
        server, fingerprint, instructions, whole, volatile = first
        name, title, version, description, protocol, capabilities = about
        info = ServerInfo(
            name=name,
            title=title,
            version=version,
            description=description,
            protocol=protocol,
            capabilities={one: {} for one in capabilities},
        )
        snapshot = Snapshot(
            server=server,
            info=info,
            instructions=instructions,
            tools=tuple(_tool(server, *row) for row in tools),
            resources=tuple(Resource(server=server, **_reading("uri", *row)) for row in resources),
            templates=tuple(
                ResourceTemplate(server=server, **_reading("uri_template", *row)) for row in templates
            ),
            prompts=tuple(_prompt(server, *row) for row in prompts),
            extensions=_extensions(server, extensions),
            skills=tuple(_skill(server, *row) for row in skills),
            pages=None
            if pages is None
            else tuple(
                Page(uri=uri, server=server, digest=page, csp=csp, permissions=tuple(asked))
                for uri, page, csp, asked in pages
            ),
        )
        marks = {(subject, name, field): how for (subject, name, field), how in volatile}
    except TypeError as problem:
        raise ValueError(str(problem)) from None
    return Pin(fingerprint=fingerprint, snapshot=snapshot, whole=whole, volatile=MappingProxyType(marks))


def _tool(
    server: str,
    name: str,
    title: str | None,
    description: str,
    schema: dict[str, Any],
    output: dict[str, Any] | None,
    annotations: dict[str, Any] | None,
    meta: dict[str, Any] | None,
    extra: dict[str, Any] | None,
) -> Tool:
    return Tool.holding(
        {
            "name": name,
            "server": server,
            "remote_name": name,
            "title": title,
            "description": description,
            "input_schema": schema,
            "output_schema": output,
            "annotations": annotations or EMPTY,
            "meta": meta or EMPTY,
            "extra": extra or EMPTY,
            "verb": "call",
            "shape": None,
        }
    )


def _extensions(server: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[Extension, ...]:
    return tuple(Extension(name=name, server=server, settings=given or EMPTY) for name, given in rows)


def _skill(
    server: str,
    name: str,
    uri: str,
    description: str,
    frontmatter: dict[str, Any],
    files: list[tuple[str, str, int]] | None,
    extra: dict[str, Any] | None,
) -> Skill:
    return Skill(
        name=name,
        server=server,
        uri=uri,
        description=description,
        frontmatter=frontmatter,
        files=None
        if files is None
        else tuple(SkillFile(uri=uri, digest=digest, size=size) for uri, digest, size in files),
        extra=extra or EMPTY,
    )


def _reading(
    key: str,
    uri: str,
    name: str,
    title: str | None,
    description: str,
    mime_type: str | None,
    extra: dict[str, Any] | None,
) -> dict[str, Any]:
    texts = {"name": name, "title": title, "description": description, "mime_type": mime_type}
    return {key: uri, **texts, "extra": extra or EMPTY}


def _prompt(
    server: str,
    name: str,
    title: str | None,
    description: str,
    arguments: list[dict[str, Any]],
    extra: dict[str, Any] | None,
) -> Prompt:
    return Prompt(
        name=name,
        server=server,
        title=title,
        description=description,
        arguments=tuple(arguments),
        extra=extra or EMPTY,
    )


_FORMAT = [1, FORMAT, RULES]


def write_prepared(lock: Lock) -> bytes:
    """Return the bytes of a lock, with its search index.

    Raises:
        ValueError: it is nested too deeply.
    """
    words = InvertedIndex(weigh(TOOL, tool_texts(tool)) for tool in lock.tools)
    pins = [rows_of(pin) for pin in lock.servers.values()]
    try:
        return json.dumps((_FORMAT, pins, words.rows()), default=dict, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_prepared(raw: bytes) -> Lock:
    """Return the lock in these bytes.

    Raises:
        ValueError, TypeError: they were not written by this version.
    """
    try:
        form, rows, words = json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if form != _FORMAT:
        raise ValueError("another form")
    pins = map(pin_of, rows)
    return Lock(
        servers=MappingProxyType({pin.server: pin for pin in pins}),
        words=InvertedIndex.from_rows(words),
    )


log = logger("mooring.lock")


_CACHE_FORMAT = f"5.{FORMAT}"
_KEPT = 512
"""Most servers in the cache; the least recently used are deleted."""
_MOST_URIS, _LONGEST_URI = 2_000, 1_000
"""Resources of one server in the cache, and characters of a URI there."""


class _About(NamedTuple):
    """The first line of a file: facts that are needed without reading the definitions."""

    version: str
    server: str
    fingerprint: str
    protocol: str | None
    tools: int
    templates: int
    prompts: int
    extensions: list[tuple[str, Mapping[str, Any]]]


class SnapshotCache:
    """A pin in the cache. Its definitions are read on first use."""

    def __init__(self, about: _About, body: bytes, uris: bytes) -> None:
        self._server, self._body = about.server, body
        self.uris = uris
        """The line of `uri_line`."""
        self.protocol = about.protocol
        self.tools, self.templates, self.prompts = about.tools, about.templates, about.prompts
        self.extensions = _extensions(about.server, about.extensions)

    @cached_property
    def pin(self) -> Pin | None:
        """The pin; None if this version cannot read it."""
        try:
            return read_rows(self._body)
        except ValueError as error:
            log.debug("The cache of server %r is ignored: %s", self._server, error)
            return None

    def has_resource(self, uri: str) -> bool:
        """Whether the server listed this resource when it last ran."""
        if json.dumps(uri).encode() not in self.uris:
            return False
        try:
            return uri in json.loads(self.uris)
        except ValueError:
            return False

    def says(self, pin: Pin) -> bool:
        """Whether the cache contains exactly this pin. Does not read the definitions."""
        return self._body == write_rows(pin)


def cache_path(server: str, fingerprint: str) -> Path:
    """Return the cache file of a server without a lock."""
    readable = re.sub(r"[^a-z0-9]+", "-", server.lower())[:40].strip("-")
    unique = sha256(f"{server}\0{fingerprint}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return cache_home() / "servers" / f"{readable}-{unique}.lock"


def uri_line(snapshot: Snapshot) -> bytes:
    """Return the line of the cache that names the resources of a server: they say which server to start."""
    uris = sorted({one.uri for one in snapshot.resources if len(one.uri) <= _LONGEST_URI})
    return json.dumps(uris[:_MOST_URIS]).encode()


def remember(pin: Pin, uris: bytes = b"[]") -> None:
    """Save a pin and its `uri_line` for the next start. A failure only means that there is no cache."""
    path = cache_path(pin.server, pin.fingerprint)
    known = pin.snapshot
    about = _About(
        _CACHE_FORMAT,
        pin.server,
        pin.fingerprint,
        known.info.protocol,
        len(known.tools),
        len(known.templates),
        len(known.prompts),
        [(one.name, one.settings) for one in known.extensions],
    )
    try:
        keep(
            path,
            json.dumps(about, default=dict).encode() + b"\n" + write_rows(pin) + b"\n" + uris,
            most=_KEPT,
        )
    except OSError as error:
        log.debug("No cache for server %r: %s", pin.server, error)


def recall(server: str, fingerprint: str) -> SnapshotCache | None:
    """Return the cached pin of a server with this configuration."""
    try:
        sealed = kept(cache_path(server, fingerprint))
    except OSError as error:
        log.debug("The cache of server %r is ignored: %s", server, error)
        return None
    first, _, rest = (sealed or b"").partition(b"\n")
    about = _about(first)
    if about is None or about[:3] != (_CACHE_FORMAT, server, fingerprint):
        return None
    body, _, uris = rest.partition(b"\n")
    return SnapshotCache(about, body, uris)


def _about(line: bytes) -> _About | None:
    """Return the facts of the first line; None if this version did not write it."""
    try:
        fields: list[Any] = json.loads(line)
        _, _, _, protocol, *counts, _ = fields
        if isinstance(protocol, str | None) and all(isinstance(count, int) for count in counts):
            return _About(*fields)
    except (ValueError, TypeError):
        pass
    return None


NAME = "mooring.lock"
_PREPARED = 16
"""Most checked locks in the cache."""


def lock_path(files: Sequence[FoundFile], cwd: Path) -> Path:
    """Return the path of the lock of a configuration. It may not exist.

    Beside the explicit file (the last of several) or the project's; with the user's files alone, in
    the user's state directory; with no file at all, in `cwd`.
    """
    for file in reversed(files):
        if file.scope != "user":
            return file.path.absolute().parent / NAME
    if not files:
        return cwd.absolute() / NAME
    return own_lock_path()


def own_lock_path() -> Path:
    """Return the path of the lock of the user's servers. It may not exist."""
    return state_home() / NAME


def speaks_of(files: Sequence[FoundFile], scope: Scope) -> bool:
    """Whether the lock of these files covers servers of this scope.

    A project's lock is shared and does not contain the servers of a user.
    """
    return scope != "user" or all(file.scope == "user" for file in files)


def written(path: Path) -> tuple[int, int] | None:
    """Return what differs after a file was written, its time and size; None without a file."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def load_lock(path: Path) -> Lock | None:
    """Return the lock in a file; None if the file does not exist.

    Raises:
        NewerLockError: a newer mooring wrote it.
        LockError: it is damaged or cannot be read.
    """
    file = str(path)
    try:
        raw = read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LockError(f"cannot be read: {error.strerror or error}", file=file) from None
    lock = _prepared(raw)
    if lock is not None:
        return lock
    from mooring.lock.text import parse

    try:
        lock = parse(raw.decode().removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise LockError("is damaged: not UTF-8 text", file=file, place=f"line {line}") from None
    except LockError as error:
        raise type(error)(error.problem, file=file, place=error.place) from None
    _prepare(raw, lock)
    return lock


def _prepared(raw: bytes) -> Lock | None:
    """Return the lock of this content if it was checked before."""
    try:
        body = kept(_place(raw))
        return None if body is None else read_prepared(body)
    except (OSError, ValueError, TypeError) as problem:
        log.debug("The prepared form of a lock is ignored: %s", problem)
        return None


def _prepare(raw: bytes, lock: Lock) -> None:
    """Cache a lock that was checked. If that fails, it is checked again next time."""
    try:
        keep(_place(raw), write_prepared(lock), most=_PREPARED)
    except (OSError, ValueError) as problem:
        log.debug("A lock could not be prepared for the next start: %s", problem)


def _place(raw: bytes) -> Path:
    return cache_home() / "locks" / f"{sha256(raw).hexdigest()}.json"


def save_lock(path: Path, lock: Lock, *, force: bool = False) -> None:
    """Replace the lock file atomically.

    Raises:
        LockError: this version of mooring cannot read the existing file and `force` is false, or the file
            cannot be written.
    """
    from mooring.lock.text import render

    target = Path(os.path.realpath(path))  # write the target of a symbolic link
    if not force:
        load_lock(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, render(lock).encode(), mode=0o644)
    except OSError as error:
        raise LockError(f"cannot be written: {error.strerror or error}", file=str(path)) from None
