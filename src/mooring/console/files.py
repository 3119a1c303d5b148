"""Changes of configuration files from the console: first the difference, then the same request writes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from mooring.config import found_files, trust
from mooring.config.documents import parse_document
from mooring.config.edit.lines import value_lines
from mooring.config.edit.target import EditTarget, diff_lines, find_entry, open_found, open_target
from mooring.config.edit.text import Drop, Put, canonical_entry, edited, find, put_entry, switch
from mooring.config.formats import DEFAULTS, server_fields
from mooring.config.load import from_document
from mooring.config.logs import logger
from mooring.config.models import HostConfig, ServerConfig
from mooring.config.programs.convert import Move
from mooring.config.programs.importing import import_sources, imported_text, planned_imports
from mooring.config.secret_scan import masked
from mooring.config.trust_review import approve_entries, read_content
from mooring.config.validate import Settings
from mooring.console.access import Visitor
from mooring.console.verbs import Body
from mooring.console.web import Verb, VerbRefused
from mooring.core.text import clean
from mooring.errors import ConfigError
from mooring.host import Host

__all__ = ["Files"]

log = logger("mooring.console")

MOST_EDITS = 200
MOST_TOOLS = 6_000
DEEPEST = 12
_NO_SETTINGS = {"servers", "warnings", "project_policy", "withheld"}
"""Fields of the configuration that no file sets by this name."""
MOST_ROWS = 20_000
SWITCHES = ("server-enable", "server-disable", "tool-enable", "tool-disable", "tool-policy")
"""Edits that start no other program: those that a principal of a gateway may make."""


@dataclass(slots=True)
class Draft:
    """One file with the changes that were asked for."""

    target: EditTarget
    text: str
    data: Mapping[str, Any]
    approve: set[str] = field(default_factory=set[str])
    """Servers to approve after the write, in a project file."""
    entries: list[Any] = field(default_factory=list[Any])
    strict: bool = False
    """Whether a setting was changed by hand, so that what is wrong is refused."""

    def change(self, changes: Sequence[Put | Drop]) -> None:
        """Apply changes to the text."""
        self.text = edited(self.text, changes, file=self.target.path)
        self.data = parse_document(self.text, self.target.path) if self.text.strip() else {}


class Drafts:
    """The changes of one request, file by file.

    Args:
        files: The configuration files that were named; None: the usual places.
    """

    def __init__(self, files: Sequence[Path] | None) -> None:
        self._files = files
        self.drafts: dict[Path, Draft] = {}
        self.notes: list[str] = []
        self.trusted: dict[Path, Any] = {}
        """Project files to approve, with their content."""

    def add(self, edit: Body) -> None:
        """Take one edit.

        Raises:
            VerbRefused: There is no such edit, or it is incomplete.
            MooringError: It cannot be made.
        """
        op = edit.text("op")
        match op:
            case "server-enable" | "server-disable":
                self._switch(edit.text("server"), on=op == "server-enable")
            case "server-remove":
                draft, path, _ = self._entry(edit.text("server"))
                draft.change([Drop(path=path)])
            case "server-add":
                self._put(edit.text("name", limit=128), edit.mapping("entry"))
            case "tool-enable" | "tool-disable":
                for server, tools in _by_server(edit).items():
                    self._show(server, tools, shown=op == "tool-enable")
            case "tool-policy":
                then = edit.text("then")
                if then not in ("allow", "ask", "deny"):
                    raise VerbRefused(400, "'then' must be 'allow', 'ask' or 'deny'")
                for server, tools in _by_server(edit).items():
                    self._judge(server, tools, then)
            case "set" | "unset":
                self._set(edit, op)
            case "demo":
                self._demo()
            case "import":
                self._import(edit.text("program"), edit.texts("servers"))
            case "trust":
                self._trust(edit.text("file"))
            case _:
                raise VerbRefused(400, f"There is no edit {op[:40]!r}; see docs/console-api.md")

    # --- servers --------------------------------------------------------------------------------

    def _switch(self, server: str, *, on: bool) -> None:
        draft, _, entry = self._entry(server)
        if bool(server_fields(entry, own=False).fields.get("disabled")) != on:
            self.notes.append(f"{server} is already {'enabled' if on else 'disabled'}.")
            return
        place = find(draft.data, server)
        assert place is not None
        draft.change([switch(place, on=on)])

    def _put(self, name: str, entry: Mapping[str, Any]) -> None:
        draft = self._draft(open_target(self._files, None))
        fields = server_fields(entry, own=True)
        if fields.problems:
            raise VerbRefused(400, "; ".join(str(one.message) for one in fields.problems))
        if find(draft.data, name) is not None:
            raise VerbRefused(409, f"There is a server {name!r} in {draft.target.path}. Use another name.")
        written = canonical_entry(fields.fields)
        draft.change([put_entry(draft.data, name, written, own=draft.target.found.own)])
        draft.approve.add(name)
        draft.entries.append(written)

    def _demo(self) -> None:
        from mooring import demo

        draft = self._draft(open_target(self._files, None))
        for name in ("notes", "clock"):
            if find(draft.data, name) is not None:
                self.notes.append(f"There is a server {name!r} already; it stays as it is.")
                continue
            command, *rest = demo.command(name)
            entry = {"command": command, "args": rest}
            draft.change([put_entry(draft.data, name, entry, own=draft.target.found.own)])
            draft.approve.add(name)

    def _import(self, program: str, servers: Sequence[str]) -> None:
        draft = self._draft(open_target(self._files, None, own=True))
        moves = _moves(draft.target, self._files, program, servers)
        if not moves:
            raise VerbRefused(404, f"No server of {program!r} was found.")
        for move in moves:
            for text in [*([move.reason] if move.reason else []), *move.candidate.notes]:
                self.notes.append(f"{move.name}: {clean(text)}")
            if move.action != "skip":
                draft.approve.add(move.name)
                draft.entries.append(move.candidate.entry)
        now = EditTarget(found=draft.target.found, before=draft.text, data=draft.data)
        draft.text = imported_text(now, moves)
        draft.data = parse_document(draft.text, draft.target.path) if draft.text.strip() else {}

    def _trust(self, name: str) -> None:
        path = self._known(name)
        self.trusted[path] = read_content(path)

    # --- tools ----------------------------------------------------------------------------------

    def _show(self, server: str, tools: Sequence[str], *, shown: bool) -> None:
        """Show or hide tools with `deny` and `allow` of their server."""
        draft, path, entry = self._entry(server)
        deny_key, denied = _names(entry, "deny")
        allow_key, allowed = _names(entry, "allow")
        wanted = [_literal(tool) for tool in tools]
        if not shown:
            denied = [*denied, *(one for one in wanted if one not in denied)]
        else:
            denied = [one for one in denied if one not in wanted]
            for tool in tools:
                if globs := [one for one in denied if fnmatchcase(tool, one)]:
                    self.notes.append(f"{server}/{tool} stays hidden by {globs[0]!r} in `{deny_key}`.")
                if allow_key in entry and not any(fnmatchcase(tool, one) for one in allowed):
                    allowed = [*allowed, _literal(tool)]
        changes = self._lists(entry, path, {deny_key: denied})
        if shown and allow_key in entry:
            changes += self._lists(entry, path, {allow_key: allowed})
        if changes:
            draft.change(changes)

    def _judge(self, server: str, tools: Sequence[str], then: str) -> None:
        """Set the policy of tools in the `policy` of their server."""
        draft, path, entry = self._entry(server)
        current = _mapping(entry.get("policy"))
        wanted = [_literal(tool) for tool in tools]
        changes: list[Put | Drop] = []
        for name in ("deny", "ask", "allow"):
            before = _texts(current.get(name))
            after = [one for one in before if one not in wanted]
            if name == then and not (then == "allow" and current.get("otherwise", "allow") == "allow"):
                after += wanted
            changes += self._lists(current, (*path, "policy"), {name: after})
        key, approve = _names(entry, "approve")
        if then == "allow" and approve:
            changes += self._lists(entry, path, {key: [one for one in approve if one not in wanted]})
        if changes:
            draft.change(changes)

    @staticmethod
    def _lists(
        entry: Mapping[str, Any], path: tuple[Any, ...], lists: Mapping[str, list[str]]
    ) -> list[Put | Drop]:
        changes: list[Put | Drop] = []
        for key, value in lists.items():
            if value and value != _texts(entry.get(key)):
                changes.append(Put(path=(*path, key), value=value))
            elif not value and key in entry:
                changes.append(Drop(path=(*path, key)))
        return changes

    # --- settings ---------------------------------------------------------------------------------

    def _set(self, edit: Body, op: str) -> None:
        path = edit.items("path", most=DEEPEST)
        if not path or not all(isinstance(key, str | int) and not isinstance(key, bool) for key in path):
            raise VerbRefused(
                400, "'path' must be a list of keys, such as ['servers', 'github', 'call_timeout']"
            )
        name = edit.maybe("file")
        target = open_target(self._files, None) if name is None else self._opened(self._known(name))
        draft = self._draft(target)
        draft.strict = True
        if op == "set":
            if "value" not in edit.given:
                raise VerbRefused(400, "'value' is missing")
            draft.entries.append({str(path[-1]): edit.given["value"]})
            draft.change([Put(path=tuple(path), value=edit.given["value"])])
        else:
            draft.change([Drop(path=tuple(path))])

    def _known(self, name: str) -> Path:
        for found in found_files(None if self._files is None else list(self._files)):
            if str(found.path) == name:
                return found.path
        raise VerbRefused(404, f"{name[:200]!r} is not a file of this configuration.")

    def _opened(self, path: Path) -> EditTarget:
        found = found_files(None if self._files is None else list(self._files))
        return open_found(next(one for one in found if one.path == path))

    # --- inside ---------------------------------------------------------------------------------

    def _entry(self, server: str) -> tuple[Draft, tuple[Any, ...], Mapping[str, Any]]:
        """Return the file that defines a server, with the place and content of the entry."""
        target, _ = find_entry(None if self._files is None else list(self._files), None, server)
        draft = self._draft(target)
        place = find(draft.data, server)
        if place is None:
            raise VerbRefused(409, f"Server {server!r} is removed by the same request.")
        draft.approve |= {server} & trust.approval_of(str(target.path)).servers.keys()
        return draft, place.path, place.entry

    def _draft(self, target: EditTarget) -> Draft:
        return self.drafts.setdefault(target.path, Draft(target, target.before or "", target.data))

    @property
    def changed(self) -> list[Draft]:
        """The files that differ."""
        return [one for one in self.drafts.values() if one.text != (one.target.before or "")]

    @property
    def revision(self) -> str:
        """A digest of the files before and after, for the request that writes."""
        parts = [[str(one.target.path), one.target.before, one.text] for one in self.changed]
        trusted = [
            [str(path), content.marks, content.settings_mark] for path, content in self.trusted.items()
        ]
        return sha256(json.dumps([parts, trusted]).encode("utf-8", "surrogatepass")).hexdigest()[:24]

    def document(self) -> dict[str, Any]:
        """Return what would change."""
        files = [
            {
                "file": str(one.target.path),
                "scope": one.target.found.scope,
                "new": one.target.before is None,
                "diff": "\n".join(diff_lines(one.target, one.text, [*one.entries, one.data])),
            }
            for one in self.changed
        ]
        for path, content in self.trusted.items():
            lines = [text for server in content.servers for text in trust.describe(server)]
            lines += list(trust.describe_settings(content.settings)) if content.settings else []
            files.append({"file": str(path), "scope": "project", "new": False, "diff": "\n".join(lines)})
        notes = [*self.notes, *(note for one in self.changed for note in _problems(one))]
        return {"files": files, "notes": notes[:200], "revision": self.revision}

    def write(self) -> list[str]:
        """Write the files; return the paths of the backups."""
        backups: list[str] = []
        for one in self.changed:
            backup = one.target.save(one.text)
            backups += [] if backup is None else [str(backup)]
            if one.target.found.scope == "project" and one.approve:
                approve_entries(one.target.path, one.approve)
        for path, content in self.trusted.items():
            trust.approve(str(path), content.marks, settings=content.settings_mark)
        return backups


class Files:
    """The verbs about configuration files."""

    def __init__(self, host: Host, files: Sequence[Path] | None, *, restricted: Callable[[], bool]) -> None:
        self._host, self._files, self._restricted = host, files, restricted
        self._turn = asyncio.Lock()

    def verbs(self) -> dict[str, Verb]:
        """Return the verbs by name."""
        return {"edit": self.edit, "settings": self.settings, "programs": self.programs}

    async def edit(self, given: Mapping[str, Any], visitor: Visitor) -> Any:
        body = Body(given)
        edits = [Body(_mapping(one)) for one in body.items("edits", most=MOST_EDITS)]
        ops = [one.text("op") for one in edits]
        if self._restricted() and (foreign := [op for op in ops if op not in SWITCHES]):
            raise VerbRefused(
                403,
                f"{foreign[0]!r} is not allowed at a gateway: it could start programs. Edit the file on the "
                "machine of the gateway.",
                kind="Denied",
            )
        if sum(len(one.items("tools", most=MOST_TOOLS)) for one in edits) > MOST_TOOLS:
            raise VerbRefused(
                400, f"There are more than {MOST_TOOLS:,} tools. Use a glob in the file instead."
            )
        async with self._turn:
            drafts = await asyncio.to_thread(self._drafted, edits)
            said = drafts.document()
            if not body.flag("write"):
                return {**said, "written": False, "backups": []}
            if given.get("revision") != said["revision"]:
                raise VerbRefused(409, "The file is another one by now. Look at the difference again.")
            backups = await asyncio.to_thread(drafts.write)
            log.info("configuration written files=%d by=%r", len(said["files"]), visitor.principal)
            try:
                await self._host.reload()
            except ConfigError as problem:
                said["notes"].append(f"The file is written, but cannot be used: {problem}")
        return {**said, "written": True, "backups": backups}

    def _drafted(self, edits: Sequence[Body]) -> Drafts:
        drafts = Drafts(self._files)
        for edit in edits:
            drafts.add(edit)
        for draft in drafts.changed:
            if draft.strict and (problems := _problems(draft)):
                text = "; ".join(problem.rstrip(".") for problem in problems)
                raise VerbRefused(400, f"The setting would not be valid, and nothing is written: {text}.")
        return drafts

    async def settings(self, given: Mapping[str, Any], _: Visitor) -> Any:
        return self._host.redact.within(await asyncio.to_thread(self._settings))

    def _settings(self) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        files: list[dict[str, Any]] = []
        for found in found_files(None if self._files is None else list(self._files)):
            about = {"file": str(found.path), "scope": found.scope, "error": None}
            files.append(about)
            try:
                target = open_found(found)
                lines = value_lines(target.before or "", found.path) if target.data else {}
            except ConfigError as problem:
                about["error"] = str(problem)
                continue
            place = {"file": str(found.path), "scope": found.scope}
            rows += [
                {"path": list(path), "value": value, "line": _line(lines, path), **place}
                for path, value in _leaves(masked(dict(target.data)), ())
            ]
        last: dict[tuple[Any, ...], str] = {}
        for row in rows:
            last[_subject(row["path"])] = row["file"]
        held = self._host.held
        for row in rows:
            subject = _subject(row["path"])
            row["effective"] = last[subject] == row["file"] and subject[-1] not in held
        return {"files": files, "rows": _with_defaults(rows[:MOST_ROWS], self._host.config)}

    async def programs(self, given: Mapping[str, Any], _: Visitor) -> Any:
        return {"programs": await asyncio.to_thread(self._programs)}

    def _programs(self) -> list[dict[str, Any]]:
        target = open_target(self._files, None, own=True)
        rows: list[dict[str, Any]] = []
        for source in import_sources(target):
            moves = planned_imports([source], target, self._files)
            servers = [
                {
                    "name": move.name,
                    "action": move.action,
                    "reason": move.reason or None,
                    "notes": [clean(note) for note in move.candidate.notes],
                    "entry": None if move.candidate.entry is None else masked(dict(move.candidate.entry)),
                }
                for move in moves
            ]
            about = {"program": source.program.name, "title": source.program.title}
            rows.append({**about, "file": str(source.file), "error": source.error, "servers": servers})
        return rows


def _moves(
    target: EditTarget, files: Sequence[Path] | None, program: str, servers: Sequence[str]
) -> list[Move]:
    sources = import_sources(target, name=program)
    return planned_imports(sources, target, files, servers=servers)


def _by_server(edit: Body) -> dict[str, list[str]]:
    """Return the tools of an edit by server."""
    found: dict[str, list[str]] = {}
    for one in edit.items("tools", most=MOST_TOOLS):
        body = Body(_mapping(one))
        found.setdefault(body.text("server"), []).append(body.text("tool"))
    return found


def _names(entry: Mapping[str, Any], name: str) -> tuple[str, list[str]]:
    """Return the key that an entry uses for a list of tools, and the list."""
    for key, value in entry.items():
        if name in server_fields({key: value}, own=False).fields:
            return key, _texts(value)
    return name, []


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(one) for one in cast("list[Any]", value)] if isinstance(value, list | tuple) else []


def _literal(tool: str) -> str:
    """Return a glob that matches this name only."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in tool)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _problems(draft: Draft) -> list[str]:
    """Return what is wrong with a changed file, and was not before."""
    file = str(draft.target.path)
    before = {str(one) for one in from_document(draft.target.data, file=file).warnings}
    return [text for one in from_document(draft.data, file=file).warnings if (text := str(one)) not in before]


def _leaves(value: Any, path: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, Mapping) and value and len(path) < DEEPEST:
        pairs = cast("Mapping[str, Any]", value).items()
        return [leaf for key, item in pairs for leaf in _leaves(item, (*path, key))]
    return [(path, value)] if path else []


def _with_defaults(rows: list[dict[str, Any]], config: HostConfig) -> list[dict[str, Any]]:
    """Add the default of each setting of the host, and rows for the settings that no file changes."""
    defaults = dict(_defaults(HostConfig(), config, ()))
    of_servers = ServerConfig.field_defaults()
    defaults |= {(name,): (_json(of_servers[name]), True) for name in sorted(DEFAULTS)}
    for row in rows:
        row["default"] = defaults.get(tuple(row["path"]), (None, False))[0]
    known = {tuple(row["path"]) for row in rows}
    nowhere = {"line": None, "file": None, "scope": None, "effective": True}
    return rows + [
        {"path": list(path), "value": value, "default": value, **nowhere}
        for path, (value, used) in defaults.items()
        if used and not any(one[: len(path)] == path for one in known)
    ]


def _defaults(
    given: Settings, effective: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[Any, bool]]]:
    """Yield the default of each setting, and whether the effective value is the default."""
    for name in sorted(given.field_names() - _NO_SETTINGS):
        value, used = getattr(given, name), getattr(effective, name, None)
        if isinstance(value, Settings):
            yield from _defaults(value, used, (*path, name))
        else:
            yield (*path, name), (_json(value), value == used)


def _json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=_plain))


def _plain(value: Any) -> Any:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else str(value)


def _line(lines: Mapping[tuple[Any, ...], int], path: tuple[Any, ...]) -> int | None:
    """Return the line of a value, or of what it stands in."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _subject(path: Sequence[Any]) -> tuple[Any, ...]:
    """Return what a later file replaces as a whole: the entry of a server, or one setting."""
    for length, word in enumerate(path):
        if word in ("servers", "mcpServers", "mcp_servers", "context_servers") and length + 1 < len(path):
            return ("server", path[length + 1])
    return tuple(path)
