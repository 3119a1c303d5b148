"""Finding, reading and merging configuration files into one `HostConfig`.

A file that cannot be parsed, or has a host-wide setting twice, is a `ConfigError`. A wrong entry is ignored
with a warning and the rest loads, unless `strict`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from mooring.config.documents import RepeatedKey, read_document
from mooring.config.files import config_homes
from mooring.config.formats import DEFAULTS, SHAPES, Entry, at, read_shape, server_fields
from mooring.config.models import (
    ConfigSource,
    ConfigWarning,
    HostConfig,
    Scope,
    ServerConfig,
    look_alike_warnings,
)
from mooring.config.references import unknown
from mooring.config.trust import NOTHING, WAYS, Approval, ProjectFile, approval_of
from mooring.config.validate import InvalidEntryError, Problem, shown
from mooring.core.names import OWNER
from mooring.core.value import Value, replace
from mooring.errors import ConfigError

__all__ = ["FoundFile", "file_for", "folders_up", "found_files", "from_document", "load", "read_files"]

_PROJECT_NAMES = ("mooring.yaml", "mooring.toml", "mooring.json", ".mcp.json")
_REMOTE = ("auth", "headers", "tls", "proxy")
_USER_NAMES = ("config.yaml", "config.toml", "config.json")


class FoundFile(Value):
    """A configuration file and its scope."""

    path: Path
    scope: Scope

    @property
    def own(self) -> bool:
        """Whether only mooring reads the file, so that an unknown key is a mistake."""
        return self.scope == "user" or self.path.stem == "mooring"


def load(
    paths: Sequence[Path] | None = None,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    user_dir: Path | None = None,
    strict: bool = False,
    known: Collection[ConfigWarning] = (),
    approval: Callable[[str], Approval] = approval_of,
) -> HostConfig:
    """Return the configuration from the given files, or else from those that `found_files` finds.

    Args:
        paths: Files to read. They are trusted.
        cwd: Where to search for project files; the working directory by default.
        env: Variables to look up `MOORING_CONFIG`; the environment by default.
        user_dir: The directory of the user's file.
        strict: Raise for a wrong entry or setting instead of ignoring it.
        known: Problems that `strict` tolerates, because they were reported before.
        approval: The approved parts of the project file.

    Raises:
        ConfigError: a file cannot be read or parsed; with `strict`, also for any wrong entry.
    """
    files = found_files(paths, cwd=cwd, env=env, user_dir=user_dir)
    return read_files(files, strict=strict, known=known, approval=approval)


def read_files(
    files: Iterable[FoundFile],
    *,
    strict: bool = False,
    known: Collection[ConfigWarning] = (),
    approval: Callable[[str], Approval] = approval_of,
) -> HostConfig:
    """Return the configuration from these files, a later one over an earlier one. See `load`.

    Raises:
        ConfigError: see `load`.
    """
    merge = _Merge(approval)
    read = 0
    for found in files:
        try:
            merge.add(found)
            read += 1
        except ConfigError as problem:
            # An unapproved project file must not prevent the use of the user's file.
            if found.scope != "project" or not read or approval(str(found.path)):
                raise
            reason = ": ".join(filter(None, (problem.place, problem.problem)))
            merge.notes.append(ConfigWarning(file=problem.file, message=f"the file is ignored: {reason}"))
    return merge.result(strict=strict, known=known)


def from_document(
    data: Mapping[str, Any], *, file: str | None = None, scope: Scope = "python", strict: bool = False
) -> HostConfig:
    """Return the configuration in a parsed document, in any accepted format.

    Raises:
        ConfigError: with `strict`, for any wrong entry.
    """
    merge = _Merge(approval_of)
    merge.take(data, ConfigSource(file=file, scope=scope), own=False)
    return merge.result(strict=strict, known=())


def found_files(
    paths: Sequence[Path] | None = None,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    user_dir: Path | None = None,
) -> tuple[FoundFile, ...]:
    """Return the files that `load` reads, in order: a later one wins.

    Files given in `paths`, else in `MOORING_CONFIG`, are explicit: then nothing else is read.
    """
    here = (cwd or Path.cwd()).absolute()
    named = os.environ if env is None else env
    explicit = list(paths or ()) or [Path(p) for p in named.get("MOORING_CONFIG", "").split(os.pathsep) if p]
    if explicit:
        return tuple(FoundFile(path=here / os.path.expanduser(path), scope="explicit") for path in explicit)
    homes = config_homes() if user_dir is None else (user_dir,)
    user = [path for home in homes if (path := _first(home, _USER_NAMES)) is not None]
    project = _project_file(here, _PROJECT_NAMES)
    files = [FoundFile(path=path, scope="user") for path in user]
    return (*files, FoundFile(path=project, scope="project")) if project is not None else tuple(files)


def file_for(
    scope: Literal["project", "user"],
    *,
    own: bool = False,
    cwd: Path | None = None,
    user_dir: Path | None = None,
) -> FoundFile:
    """Return the file of the project or the user to write to. It may not exist yet.

    With `own`, the project's file is one that only mooring reads.
    """
    if scope == "user":
        home = user_dir or config_homes()[-1]
        return FoundFile(path=_first(home, _USER_NAMES) or home / _USER_NAMES[0], scope=scope)
    here = (cwd or Path.cwd()).absolute()
    names = tuple(name for name in _PROJECT_NAMES if not own or name.startswith("mooring."))
    return FoundFile(path=_project_file(here, names) or here / _PROJECT_NAMES[0], scope=scope)


def _project_file(here: Path, names: Sequence[str]) -> Path | None:
    return next(filter(None, (_first(folder, names) for folder in folders_up(here))), None)


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    # Path.is_file raises for a directory without permission.
    return next((folder / name for name in names if os.path.isfile(folder / name)), None)


def folders_up(here: Path) -> Iterator[Path]:
    """Return `here` and its parents up to the repository root; outside a repository only `here`.

    Other parents, such as /tmp, are not trusted.
    """
    folders = [here, *here.parents]
    root = next((index for index, folder in enumerate(folders) if os.path.exists(folder / ".git")), 0)
    return iter(folders[: root + 1])


_Setting = tuple[Any, str | None, bool]
"""A value, its file, and whether the name may mean something else there."""
_OWN = ConfigSource(scope="user")


DENIES: Mapping[str, str] = {
    "policy": "the policy is",
    "guards": "the guards are",
    "audit": "the audit log is",
}
"""Settings of which a wrong value denies every tool."""
CLOSED: Mapping[str, tuple[Any, str]] = {
    "enabled": (False, "No server is active"),
    "enabled_servers": ((), "No server is active"),
    "isolation": ("session", "Each session has its own connections"),
    "strict_root_paths": (True, "`file:` resources must lie inside `roots`"),
    "resource_uri_allowlist": (NOTHING, "No resource can be read"),
}
"""Restrictions, each with its strictest value, which a wrong one gets, and what that means."""


class _Merge:
    def __init__(self, approval: Callable[[str], Approval]) -> None:
        self.approval = approval
        self.entries: dict[str, tuple[Entry, ConfigSource]] = {}
        self.settings: dict[str, _Setting] = {}
        self.project: ProjectFile | None = None
        self.problems: list[ConfigWarning] = []
        self.notes: list[ConfigWarning] = []

    def add(self, found: FoundFile) -> None:
        """Merge one file over the earlier ones."""
        source = ConfigSource(file=str(found.path), scope=found.scope)
        repeated: list[RepeatedKey] = []
        self.take(read_document(found.path, repeated), source, own=found.own, repeated=repeated)

    def take(
        self,
        data: Mapping[str, Any],
        source: ConfigSource,
        *,
        own: bool,
        repeated: Sequence[RepeatedKey] = (),
    ) -> None:
        """Merge one document over the earlier ones.

        Raises:
            ConfigError: a setting of the host is in `repeated`.
        """
        file = source.file
        places = [_in_servers(key, data, file) for key in repeated]
        shape = read_shape(data, own=own)
        project = None
        if source.scope == "project":
            project = self.project = ProjectFile(source, self.approval(file or ""))
            project.needs_approval = frozenset(shape.needs_approval)
        for (name, field), key in zip(places, repeated, strict=True):
            if name is None or field is None:
                problem = Problem(field=field, message=f"{key.problem}; the first is used")
                self.wrong(source, _warning(file, name, problem))
            elif name not in shape.servers:  # such as an inline table of TOML, which is left out as a whole
                self.wrong(
                    source, _warning(file, name, Problem(field=field, message=f"{key.problem}; keep one"))
                )
        for server, problem in shape.problems:
            self.wrong(source, _warning(file, server, problem))
        for note in shape.notes:
            self.notes.append(_warning(file, None, note))
        for name, value in shape.settings.items():
            value = _placed(name, value, source)
            if project is not None:
                project.set(name, value)
            else:
                self.settings[name] = (value, file, name in shape.needs_approval)
        for name, raw in shape.servers.items():
            entry = server_fields(raw, own=own)
            if name in shape.aliased:
                entry.written["name"] = "alias"
            for (server, field), key in zip(places, repeated, strict=True):
                if server == name and field is not None:
                    entry.problems.append(Problem(field=field, message=f"{key.problem}; keep one"))
            if project is not None:
                project.complete(entry)
                project.entries[name] = entry
            else:
                self.entries[name] = (entry, source)

    def wrong(self, source: ConfigSource, warning: ConfigWarning) -> None:
        """Record a problem. In an unapproved project file it is not an error under `strict`."""
        unapproved = source.scope == "project" and not (self.project and self.project.approval)
        if unapproved:
            self.notes.append(replace(warning, serious=False))
        else:
            self.problems.append(warning)

    def result(self, *, strict: bool, known: Collection[ConfigWarning]) -> HostConfig:
        defaults = self.defaults(self.settings)
        host = self.with_project(self.host(self.settings)[0])
        self.refuse_other_ways(host)
        servers = self.servers(defaults)
        self.notes += look_alike_warnings(servers)
        for name in host.enabled_servers or ():
            if name not in servers:
                setting = self.settings.get("enabled_servers")
                message = f"names {shown(name)}, which is not configured"
                file = setting[1] if setting else None
                self.notes.append(ConfigWarning(file=file, field="enabled_servers", message=message))
        if self.project is not None:
            self.notes += self.project.warnings()
        new = [problem for problem in self.problems if problem not in known]
        if strict and new:
            raise _all_of(new)
        # All parts are already validated.
        warnings = (*self.problems, *self.notes)
        withheld = None if self.project is None else self.project.withheld()
        values = {**vars(host), "servers": tuple(servers.values()), "warnings": warnings}
        return HostConfig.holding({**values, "withheld": withheld})

    def servers(self, defaults: Mapping[str, Any]) -> dict[str, ServerConfig]:
        """Return the servers by name. A project's server replaces the user's only if approved."""
        found: dict[str, ServerConfig] = {}
        for name, (entry, source) in self.entries.items():
            if (server := self.server(name, entry, source, defaults)) is not None:
                found[name] = server
        project = self.project
        if project is None:
            return found
        fill = {name: (value, project.source.file, False) for name, value in project.fill.items()}
        own = {**defaults, **self.defaults(fill, project.source)}
        for name, entry in project.entries.items():
            server = self.server(name, entry, project.source, own)
            if server is None:
                continue
            if name in found and not project.approves(server):
                project.keep_out(server, found[name])
            else:
                found[name] = server
        return found

    def with_project(self, mine: HostConfig) -> HostConfig:
        """Return the user's settings merged with the approved and stricter ones of the project file."""
        project = self.project
        if project is None or not project.settings or not project.in_force:
            return mine
        from mooring.config.trust import NEVER, combined

        file = project.source.file
        for name, why in NEVER.items():
            if name in project.settings:
                message = f"is ignored: {why}; write it into your own file, or name this file with `--config`"
                serious = name != "artifacts"
                self.notes.append(ConfigWarning(file=file, field=name, message=message, serious=serious))
        given = {
            name: (value, file, name in project.needs_approval)
            for name, value in project.settings.items()
            if name not in NEVER
        }
        theirs, wrong = self.host(given, project.source)
        good = {name: value for name, (value, _, _) in given.items() if name not in wrong}
        own = {name: value for name, (value, _, _) in self.settings.items()}
        host, refused = combined(mine, theirs, good, own)
        for name in refused:
            message = "is ignored: a project file can only make it stricter than your own settings"
            self.notes.append(ConfigWarning(file=file, field=name, message=message))
        return host

    def refuse_other_ways(self, host: HostConfig) -> None:
        """Disable servers that would use the host's `tls` or `proxy` if that setting is wrong."""
        for way in WAYS & self.settings.keys():
            if getattr(host, way) is None and self.settings[way][0] is not None:
                theirs = self.project.entries.values() if self.project else ()
                for entry in (*(entry for entry, _ in self.entries.values()), *theirs):
                    if "url" in entry.fields and way not in entry.fields:
                        wrong = f"the setting {way!r} for all servers is invalid; correct it, or set it here"
                        entry.problems.append(Problem(field=None, message=wrong))

    def server(
        self, name: str, entry: Entry, source: ConfigSource, defaults: Mapping[str, Any]
    ) -> ServerConfig | None:
        """Return the validated entry, or None with recorded problems."""
        self.notes += (_warning(source.file, name, note) for note in entry.notes)
        problems, server = tuple(entry.problems), None
        if name == OWNER:
            taken = f"the name {OWNER!r} is that of the host's own tools; choose another name"
            problems = (*problems, Problem(field=None, message=taken))
        try:
            fields = {**defaults, **entry.fields, "name": name, "source": source}
            server = ServerConfig.from_fields(fields)
        except InvalidEntryError as error:
            # An entry with a misspelt field is incomplete: only problems of its other fields are true.
            found = (one for one in error.problems if one.field is not None or not problems)
            problems = (*problems, *(_as_written(problem, entry) for problem in found))
        for problem in problems:
            self.wrong(source, _warning(source.file, name, problem))
        if server is None or problems:
            return None
        self.notes += _strange_references(server)
        self.notes += _ignored_fields(server, entry)
        return server

    def defaults(self, settings: dict[str, _Setting], source: ConfigSource = _OWN) -> dict[str, Any]:
        """Return the valid defaults for servers, each checked alone."""
        good: dict[str, Any] = {}
        for name in sorted(DEFAULTS & settings.keys()):
            value = settings.pop(name)
            example: dict[str, Any] = {"name": "any", "command": "any", name: value[0]}
            try:
                ServerConfig.from_fields(example)
            except InvalidEntryError as error:
                self.refuse(error.problems, {name: value}, source)
                if name in CLOSED and not value[2]:
                    good[name] = CLOSED[name][0]
            else:
                good[name] = value[0]
        return good

    def host(self, settings: dict[str, _Setting], source: ConfigSource = _OWN) -> tuple[HostConfig, set[str]]:
        """Return the host-wide settings, and the names of wrong ones, which have their default.

        A wrong restriction has its strictest value instead, and a wrong policy, guard or audit log denies
        every tool: it may be what keeps a tool from being called unseen.
        """
        values = {name: value for name, (value, _, _) in settings.items()}
        try:
            return HostConfig.from_fields(values), set()
        except InvalidEntryError as error:
            self.refuse(error.problems, settings, source)
            wrong = {(problem.field or "").partition(".")[0] for problem in error.problems}
            good = {name: value for name, value in values.items() if name not in wrong}
            meant = {name for name in wrong if name in settings and not settings[name][2]}
            good |= {name: CLOSED[name][0] for name in meant & CLOSED.keys()}
            wrong -= CLOSED.keys() & meant
            if meant & DENIES.keys():
                good["policy"] = {"otherwise": "deny"}
                wrong.discard("policy")
            return HostConfig.from_fields(good), wrong

    def refuse(
        self, problems: Sequence[Problem], settings: Mapping[str, _Setting], source: ConfigSource
    ) -> None:
        for problem in problems:
            name = (problem.field or "").partition(".")[0]
            _, file, needs_approval = settings[name]
            warning = _warning(file, None, problem)
            if needs_approval:
                self.notes.append(warning)
                continue
            if name in DENIES:
                said = warning.message if warning.message.endswith("?") else f"{warning.message}."
                message = f"{said} Every tool is denied until {DENIES[name]} correct"
                warning = replace(warning, message=message)
            elif name in CLOSED:
                warning = replace(
                    warning, message=f"{warning.message}. {CLOSED[name][1]} until it is correct"
                )
            self.wrong(source, warning)


def _in_servers(key: RepeatedKey, data: Mapping[str, Any], file: str | None) -> tuple[str | None, str | None]:
    """Return the server and the field that a repeated key stands for; no server for a section of servers.

    Raises:
        ConfigError: it is a setting of the host. Which one is meant may decide what is allowed.
    """
    for shape in SHAPES:
        if key.path[: len(shape)] == shape:
            name, *inner = key.path[len(shape) :] or (None,)
            if isinstance(name, int):
                entry = cast("list[dict[str, Any]]", at(data, shape))[name]
                name = str(entry.get("name") or entry.get("alias"))
            return name, ".".join(map(str, inner if name else shape)) or None
    error = key.error()
    raise ConfigError(error.problem, file=file, place=error.place)


def _as_written(problem: Problem, entry: Entry) -> Problem:
    """Return the problem under the name that the file uses for the field."""
    head, dot, tail = (problem.field or "").partition(".")
    return Problem(field=entry.written.get(head, head) + dot + tail or None, message=problem.message)


def _warning(file: str | None, server: str | None, problem: Problem) -> ConfigWarning:
    return ConfigWarning(
        file=file, server=server, field=problem.field, message=problem.message, serious=problem.serious
    )


def _placed(name: str, value: object, source: ConfigSource) -> object:
    """Return a setting with its paths resolved relative to its file."""
    if name == "audit" and isinstance(value, str):
        value = {"path": value}
    if name not in ("tls", "audit", "gateway") or source.file is None or not isinstance(value, Mapping):
        return value
    from mooring.config.network import PATHS

    given = dict(cast("Mapping[str, Any]", value))
    if name == "gateway" and given.get("audit") is not None:
        given["audit"] = _placed("audit", given["audit"], source)
    folder = os.path.dirname(source.file)
    for field in ("path",) if name == "audit" else PATHS if name == "tls" else ():
        if isinstance(place := given.get(field), str) and not place.startswith("$"):
            given[field] = os.path.join(folder, os.path.expanduser(place))
    return given


def _ignored_fields(server: ServerConfig, entry: Entry) -> Iterator[ConfigWarning]:
    """Yield warnings for HTTP fields in the entry of a program."""
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
                f"{found} is not a reference that mooring knows, and is kept as text; "
                "write $${ if that is intended"
            )
            yield ConfigWarning(file=server.file, server=server.name, field=place, message=message)


def _all_of(problems: Sequence[ConfigWarning]) -> ConfigError:
    if len(problems) > 1:
        lines = "\n".join(f"  {problem}" for problem in problems)
        return ConfigError(f"the configuration has {len(problems)} problems:\n{lines}")
    only = problems[0]
    place = str(ConfigWarning(server=only.server, field=only.field, message=""))
    return ConfigError(only.message, file=only.file, place=place or None)
