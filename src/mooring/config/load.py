"""Finding, reading and merging configuration files into one `HostConfig`.

A file that cannot be parsed is a `ConfigError`: there is nothing to go on with. A wrong entry in a
readable file is set aside with a warning and the rest loads, unless `strict`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from mooring.config.documents import read_document
from mooring.config.fields import Entry, server_fields
from mooring.config.formats import DEFAULTS, read_shape
from mooring.core.checks import shown
from mooring.core.config import ConfigWarning, HostConfig, Scope, ServerConfig, Source
from mooring.core.expand import unknown
from mooring.core.lookalike import look_alikes
from mooring.core.names import OWNER
from mooring.core.problems import InvalidEntryError, Problem
from mooring.core.values import Value
from mooring.errors import ConfigError

__all__ = ["FoundFile", "file_for", "folders_up", "found_files", "from_document", "load", "read_files"]

_PROJECT_NAMES = ("mooring.yaml", "mooring.toml", "mooring.json", ".mcp.json")
_REMOTE = ("auth", "headers", "tls", "proxy")
_WAYS = frozenset(("tls", "proxy"))
_GUARDED = frozenset(("policy", "audit", "gateway"))
"""Settings of which a file that was merely found may not say everything."""
_USER_NAMES = ("config.yaml", "config.toml", "config.json")


class FoundFile(Value):
    """A configuration file, and on whose behalf it speaks."""

    path: Path
    scope: Scope

    @property
    def own(self) -> bool:
        """Whether it is a file of mooring's alone, where an unknown key can only be a mistake."""
        return self.scope == "user" or self.path.stem == "mooring"


def load(
    paths: Sequence[Path] | None = None,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    user_dir: Path | None = None,
    strict: bool = False,
) -> HostConfig:
    """The configuration from the given files, or else from those that `found_files` finds.

    Raises:
        ConfigError: a file cannot be read or parsed; with `strict`, also for any wrong entry.
    """
    return read_files(found_files(paths, cwd=cwd, env=env, user_dir=user_dir), strict=strict)


def read_files(files: Iterable[FoundFile], *, strict: bool = False) -> HostConfig:
    """The configuration from these files, a later one over an earlier one.

    Raises:
        ConfigError: see `load`.
    """
    merge = _Merge()
    for found in files:
        merge.add(found)
    return merge.result(strict=strict)


def from_document(
    data: Mapping[str, Any], *, file: str | None = None, scope: Scope = "python", strict: bool = False
) -> HostConfig:
    """The configuration in a document that is read already, in any of the shapes of a file.

    Raises:
        ConfigError: with `strict`, for any wrong entry.
    """
    merge = _Merge()
    merge.take(data, Source(file=file, scope=scope), own=False)
    return merge.result(strict=strict)


def found_files(
    paths: Sequence[Path] | None = None,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    user_dir: Path | None = None,
) -> tuple[FoundFile, ...]:
    """The files that `load` reads, in its order: a later one wins.

    Files given in `paths`, else in `MOORING_CONFIG`, are explicit: then nothing else is read.
    """
    here = (cwd or Path.cwd()).absolute()
    named = os.environ if env is None else env
    explicit = list(paths or ()) or [Path(p) for p in named.get("MOORING_CONFIG", "").split(os.pathsep) if p]
    if explicit:
        return tuple(FoundFile(path=here / os.path.expanduser(path), scope="explicit") for path in explicit)
    home = user_dir or _user_folder()
    user = _first(home, _USER_NAMES)
    project = next(filter(None, (_first(folder, _PROJECT_NAMES) for folder in folders_up(here))), None)
    scopes: tuple[tuple[Path | None, Scope], ...] = ((user, "user"), (project, "project"))
    return tuple(FoundFile(path=path, scope=scope) for path, scope in scopes if path is not None)


def file_for(
    scope: Literal["project", "user"], *, cwd: Path | None = None, user_dir: Path | None = None
) -> FoundFile:
    """The file of the project or the user, also where there is none yet: then the one to make."""
    for found in found_files(cwd=cwd, env={}, user_dir=user_dir):
        if found.scope == scope:
            return found
    if scope == "user":
        return FoundFile(path=(user_dir or _user_folder()) / _USER_NAMES[0], scope=scope)
    return FoundFile(path=(cwd or Path.cwd()).absolute() / _PROJECT_NAMES[0], scope=scope)


def _user_folder() -> Path:
    import platformdirs  # not needed where files are named

    return platformdirs.user_config_path("mooring", appauthor=False)


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    # Not Path.is_file, which raises for a folder that may not be entered.
    return next((folder / name for name in names if os.path.isfile(folder / name)), None)


def folders_up(here: Path) -> Iterator[Path]:
    """`here` and its parents up to the repository root; outside a repository, `here` alone.

    A parent that belongs to no repository may be anybody's, such as /tmp.
    """
    folders = [here, *here.parents]
    root = next((index for index, folder in enumerate(folders) if os.path.exists(folder / ".git")), 0)
    return iter(folders[: root + 1])


class _Merge:
    def __init__(self) -> None:
        self.entries: dict[str, tuple[Entry, Source]] = {}
        self.settings: dict[str, tuple[Any, str | None, bool]] = {}
        """Each with its file, and whether the name may mean something else there."""
        self.problems: list[ConfigWarning] = []
        self.notes: list[ConfigWarning] = []

    def add(self, found: FoundFile) -> None:
        """Reads one file over what came before it."""
        source = Source(file=str(found.path), scope=found.scope)
        self.take(read_document(found.path), source, own=found.own)

    def take(self, data: Mapping[str, Any], source: Source, *, own: bool) -> None:
        """Reads one document over what came before it."""
        file = source.file
        shape = read_shape(data, own=own)
        for server, problem in shape.problems:
            self.problems.append(_warning(file, server, problem))
        for note in shape.notes:
            self.notes.append(_warning(file, None, note))
        ways: dict[str, Any] = {}
        for name, value in shape.settings.items():
            value = _placed(name, value, source)
            if source.scope == "project" and name in _WAYS:
                ways[name] = value  # it says how its own servers are reached, and nobody else's
                continue
            if source.scope == "project" and name in _GUARDED:
                value = self.theirs(name, value, source)
                if value is None:
                    continue
            self.settings[name] = (value, file, name in shape.doubtful)
        for name, raw in shape.servers.items():
            entry = server_fields(raw, own=own)
            if "url" in entry.fields:
                entry.fields.update({name: ways[name] for name in ways.keys() - entry.fields.keys()})
            self.entries[name] = (entry, source)

    def theirs(self, name: str, value: object, source: Source) -> object:
        """What a file that was merely found may say of a setting; None, with the reason noted, if nothing."""
        if name == "policy":
            if name not in self.settings:
                return value
            message = "is ignored: that of the user's own file holds; write it into the servers' entries"
            self.notes.append(ConfigWarning(file=source.file, field=name, message=message))
            return None
        rest: dict[str, Any] = {}
        if name == "gateway":
            rest = _copied(value)
            if rest.pop("audit", None) is None:
                return value
        message = (
            "is ignored: a file that was merely found may not name a file to write to; "
            "write it into your own file, or name this one with --config"
        )
        field = name if name == "audit" else "gateway.audit"
        self.notes.append(ConfigWarning(file=source.file, field=field, message=message))
        return rest or None

    def result(self, *, strict: bool) -> HostConfig:
        defaults = self.defaults()
        host = self.host()
        self.refuse_other_ways(host)
        servers = [
            server
            for name, (entry, source) in self.entries.items()
            if (server := self.server(name, entry, source, defaults)) is not None
        ]
        for one, other in look_alikes(server.name for server in servers):
            source = self.entries[other][1]
            message = (
                f"looks like {shown(one)}, for which people and models would take it; rename one of them"
            )
            self.problems.append(ConfigWarning(file=source.file, server=other, message=message))
            servers = [server for server in servers if server.name != other]
        for name in host.enabled_servers or ():
            if name not in self.entries:
                file = self.settings["enabled_servers"][1]
                message = f"names {shown(name)}, which is not configured"
                self.notes.append(ConfigWarning(file=file, field="enabled_servers", message=message))
        if strict and self.problems:
            raise _all_of(self.problems)
        # Every part of it was checked.
        warnings = (*self.problems, *self.notes)
        return HostConfig.holding({**vars(host), "servers": tuple(servers), "warnings": warnings})

    def refuse_other_ways(self, host: HostConfig) -> None:
        """Where the host's own way is wrong, those who would take it are not reached by another one."""
        for way in _WAYS & self.settings.keys():
            if getattr(host, way) is None and self.settings[way][0] is not None:
                for entry, _ in self.entries.values():
                    if "url" in entry.fields and way not in entry.fields:
                        wrong = (
                            f"the setting {way!r} for all servers is wrong; correct it, or give it its own"
                        )
                        entry.problems.append(Problem(field=None, message=wrong))

    def server(
        self, name: str, entry: Entry, source: Source, defaults: Mapping[str, Any]
    ) -> ServerConfig | None:
        """The validated entry; None, with the reasons noted, when it is wrong."""
        self.notes += (_warning(source.file, name, note) for note in entry.notes)
        problems, server = tuple(entry.problems), None
        if name == OWNER:
            taken = f"the name {OWNER!r} is that of the host's own tools; choose another name"
            problems = (*problems, Problem(field=None, message=taken))
        if not problems:
            try:
                server = ServerConfig(**{**defaults, **entry.fields}, name=name, source=source)
            except InvalidEntryError as error:
                problems = error.problems
        for problem in problems:
            head, dot, tail = (problem.field or "").partition(".")
            spelled = entry.written.get(head, head) + dot + tail
            written = Problem(field=spelled or None, message=problem.message)
            self.problems.append(_warning(source.file, name, written))
        if server is not None:
            self.notes += _strange_references(server)
            self.notes += _misfits(server, entry)
        return server

    def defaults(self) -> dict[str, Any]:
        """What the settings say for servers that leave it out, each value checked on its own."""
        good: dict[str, Any] = {}
        for name in sorted(DEFAULTS & self.settings.keys()):
            value = self.settings.pop(name)
            example: dict[str, Any] = {"name": "any", "command": "any", name: value[0]}
            try:
                ServerConfig(**example)
            except InvalidEntryError as error:
                self.refuse(error.problems, {name: value})
            else:
                good[name] = value[0]
        return good

    def host(self) -> HostConfig:
        """The host-wide settings; a wrong one is left at its default."""
        values = {name: value for name, (value, _, _) in self.settings.items()}
        try:
            return HostConfig(**values)
        except InvalidEntryError as error:
            self.refuse(error.problems, self.settings)
            wrong = {(problem.field or "").partition(".")[0] for problem in error.problems}
            return HostConfig(**{name: value for name, value in values.items() if name not in wrong})

    def refuse(
        self, problems: Sequence[Problem], settings: Mapping[str, tuple[Any, str | None, bool]]
    ) -> None:
        for problem in problems:
            _, file, doubtful = settings[(problem.field or "").partition(".")[0]]
            (self.notes if doubtful else self.problems).append(_warning(file, None, problem))


def _warning(file: str | None, server: str | None, problem: Problem) -> ConfigWarning:
    return ConfigWarning(file=file, server=server, field=problem.field, message=problem.message)


def _placed(name: str, value: object, source: Source) -> object:
    """A setting with the files that it names relative to the file that it stands in."""
    if name == "audit" and isinstance(value, str):
        value = {"path": value}
    if name not in ("tls", "audit", "gateway") or source.file is None or not isinstance(value, Mapping):
        return value
    from mooring.core.tls import PATHS  # few files have such settings

    given = dict(cast("Mapping[str, Any]", value))
    if name == "gateway" and given.get("audit") is not None:
        given["audit"] = _placed("audit", given["audit"], source)
    folder = os.path.dirname(source.file)
    for field in ("path",) if name == "audit" else PATHS if name == "tls" else ():
        if isinstance(place := given.get(field), str) and not place.startswith("$"):
            given[field] = os.path.join(folder, os.path.expanduser(place))
    return given


def _copied(value: object) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def _misfits(server: ServerConfig, entry: Entry) -> Iterator[ConfigWarning]:
    """What only a server with an address has a use for, in the entry of a program."""
    for name in _REMOTE if server.url is None else ():
        if name in entry.written:
            message = "is ignored: the server is a program, and this is for servers with a 'url'"
            yield ConfigWarning(
                file=server.file, server=server.name, field=entry.written[name], message=message
            )


def _strange_references(server: ServerConfig) -> Iterator[ConfigWarning]:
    for place, text in server.texts():
        for found in unknown(text):
            message = (
                f"{found} is no reference that mooring knows and stays as it is; write $${{ to mean that"
            )
            yield ConfigWarning(file=server.file, server=server.name, field=place, message=message)


def _all_of(problems: Sequence[ConfigWarning]) -> ConfigError:
    if len(problems) > 1:
        lines = "\n".join(f"  {problem}" for problem in problems)
        return ConfigError(f"the configuration has {len(problems)} problems:\n{lines}")
    only = problems[0]
    place = str(ConfigWarning(server=only.server, field=only.field, message=""))
    return ConfigError(only.message, file=only.file, place=place or None)
