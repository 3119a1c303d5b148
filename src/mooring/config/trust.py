"""Effects of a project file, and the merge of its settings with the user's."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mooring.config.files import replace_file, state_home
from mooring.config.formats import DEFAULTS
from mooring.config.models import ConfigSource, ConfigWarning, Conformance, HostConfig, ServerConfig, Withheld
from mooring.config.references import references
from mooring.config.secret_scan import masked
from mooring.config.sections import ScriptSettings
from mooring.core.redact import Redactor, secrets_in
from mooring.core.text import clean
from mooring.core.types import EMPTY
from mooring.core.uris import DANGEROUS
from mooring.core.value import Value, replace
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.config.formats import Entry

NEVER: Mapping[str, str] = {
    "gateway": "the gateway is configured by your own file",
    "audit": "project files found automatically may not set output paths",
    "artifacts": "project files found automatically may not set output paths",
    "guards": "guards are configured by your own file",
}
"""Settings that project files found automatically may not have, even if approved, and why."""

_CONFORMANCE: Mapping[Conformance, int] = {"off": 0, "warn": 1, "strict": 2}
NOTHING = ("-",)
"""An allowlist that matches no scheme."""


def settings_mark(settings: Mapping[str, Any]) -> str:
    """Return a hash of host-wide settings as written."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def combined(
    mine: HostConfig, theirs: HostConfig, given: Mapping[str, Any], own: Mapping[str, Any]
) -> tuple[HostConfig, tuple[str, ...]]:
    """Return the user's settings with those of an approved project file, and the names of rejected ones.

    Args:
        mine: The user's settings; a setting that the user leaves out has its default.
        theirs: The project's settings.
        given: The settings in the project file, as written.
        own: The user's settings, as written.
    """
    changes: dict[str, Any] = {name: getattr(theirs, name) for name in given}
    refused: list[str] = []

    def keep(name: str, value: object) -> None:
        changes[name] = value
        if value != getattr(theirs, name):
            refused.append(name)

    if "policy" in given:
        # Both apply, the stricter one wins. A service would receive the arguments of every call.
        changes["project_policy"] = replace(changes.pop("policy"), decide=None)
        if theirs.policy.decide is not None:
            refused.append("policy.decide")
    if "enabled" in given:
        keep("enabled", mine.enabled and theirs.enabled)
    if "enabled_servers" in given and (wanted := mine.enabled_servers) is not None:
        also = theirs.enabled_servers
        changes["enabled_servers"] = (
            wanted if also is None else tuple(name for name in wanted if name in also)
        )
    if "output_schema" in given:
        stricter = _CONFORMANCE[theirs.output_schema] > _CONFORMANCE[mine.output_schema]
        keep("output_schema", theirs.output_schema if stricter else mine.output_schema)
    if "strict_root_paths" in given:
        keep("strict_root_paths", mine.strict_root_paths or theirs.strict_root_paths)
    if "roots" in given and mine.strict_root_paths:
        keep("roots", mine.roots)
    if "resource_uri_allowlist" in given:
        keep("resource_uri_allowlist", _schemes(mine, theirs))
    if "scripts" in given:
        said = cast("Mapping[str, Any]", given["scripts"])
        limited = _scripts(mine.scripts, theirs.scripts, said, own.get("scripts") or {})
        changes["scripts"] = limited
        refused += (
            f"scripts.{name}" for name in said if getattr(limited, name) != getattr(theirs.scripts, name)
        )
    if "context" in given:
        said = "passthrough" in cast("Mapping[str, Any]", given["context"])
        passthrough = mine.context.passthrough and (theirs.context.passthrough or not said)
        changes["context"] = replace(theirs.context, passthrough=passthrough)
        if theirs.context.passthrough and not passthrough:
            refused.append("context.passthrough")
    return HostConfig.holding({**vars(mine), **changes}), tuple(refused)


def _scripts(
    mine: ScriptSettings, theirs: ScriptSettings, given: Iterable[str], own: Collection[str]
) -> ScriptSettings:
    """Return the user's settings with those that the project file has (`given`).

    What the user's file has (`own`) can only become stricter.
    """
    values: dict[str, Any] = {}
    for name in given:
        before, value = getattr(mine, name), getattr(theirs, name)
        if name == "writes":
            value = "deny" if before == "deny" else value
        elif name in own:
            value = (value and before) if name == "enabled" else min(value, before)
        values[name] = value
    return replace(mine, **values)


def _schemes(mine: HostConfig, theirs: HostConfig) -> tuple[str, ...]:
    """Return the schemes that both lists allow; an empty list allows all but the dangerous ones."""
    allowed, wanted = mine.resource_uri_allowlist, theirs.resource_uri_allowlist
    if not wanted:
        return allowed
    if not allowed:
        return tuple(scheme for scheme in wanted if _plain(scheme) not in DANGEROUS)
    both = {_plain(scheme) for scheme in allowed}
    return tuple(scheme for scheme in wanted if _plain(scheme) in both) or NOTHING


def _plain(scheme: str) -> str:
    return scheme.strip().rstrip(":/").lower()


_HARMLESS = frozenset(
    (
        *("source", "disabled", "description", "start", "max_concurrency", "max_message", "sweep_interval"),
        "max_queue",
        *(
            "connect_timeout",
            "call_timeout",
            "idle_timeout",
            "list_timeout",
            "probe_timeout",
            "shutdown_grace",
        ),
    )
)
"""Fields without effect on what is run, reached or allowed. All others are part of the hash."""

_FORBIDDEN = (
    # which libraries a program loads
    r"(?i)LD_.+|DYLD_.+|GCONV_PATH|GLIBC_TUNABLES"
    # what an interpreter runs or loads before, or in place of, the program it was given
    r"|NODE_OPTIONS|NODE_PATH|PYTHON(?:PATH|STARTUP|HOME|USERBASE|WARNINGS|BREAKPOINT|PLATLIBDIR|INSPECT)"
    r"|BASH_ENV|ENV|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|IFS|BASH_FUNC_.+"
    r"|PERL5OPT|PERL5LIB|PERL5DB|PERLLIB|RUBYOPT|RUBYLIB|GEM_PATH|GEM_HOME|LUA_INIT.*|PHPRC|PHP_INI_SCAN_DIR"
    r"|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH"
    r"|DOTNET_STARTUP_HOOKS|DOTNET_ADDITIONAL_DEPS|CORECLR_.+|COR_.+"
    # which programs are found, and which ones git and ssh start
    r"|PATH|PATHEXT|COMSPEC|GIT_SSH|GIT_SSH_COMMAND|GIT_ASKPASS|SSH_ASKPASS|GIT_EXEC_PATH|GIT_EXTERNAL_DIFF"
    r"|GIT_PROXY_COMMAND|GIT_EDITOR|GIT_PAGER|GIT_CONFIG.*"
    # where npx, uvx and pip fetch the code that they run
    r"|NPM_CONFIG_.+|PIP_(?:EXTRA_)?INDEX_URL|PIP_CONFIG_FILE|UV_(?:.*INDEX.*|CONFIG_FILE|FIND_LINKS)"
    # certificates that a program trusts, and proxies
    r"|SSL_CERT_FILE|SSL_CERT_DIR|NODE_EXTRA_CA_CERTS|NODE_TLS_REJECT_UNAUTHORIZED|REQUESTS_CA_BUNDLE"
    r"|(?:HTTPS?|ALL)_PROXY|MOORING_.+"
)
"""Variables that make a harmless-looking command run other code, or use another network peer."""


class TrustRequest(Value):
    """A project file with servers or settings that are not approved."""

    file: str
    """The project file."""
    servers: tuple[ServerConfig, ...]
    """The servers that it configures."""
    changed: tuple[str, ...] = ()
    """Names of servers that changed since they were approved."""
    settings: Mapping[str, Any] = EMPTY
    """Host-wide settings as written; empty if they are approved or missing."""

    @property
    def text(self) -> str:
        """Everything that would be run, reached or set, in full, with invisible characters escaped."""
        parts = ["\n".join(describe(server)) for server in self.servers]
        if self.settings:
            parts.append("\n".join(describe_settings(self.settings)))
        return "\n\n".join(parts)


def mark(server: ServerConfig) -> str:
    """Return a hash of the effective fields of an entry, as written.

    Default values are left out, so that new fields of later versions do not change it.
    """
    plain = {
        one.name: value
        for one in fields(cast("Any", server))
        if one.name not in _HARMLESS and (value := getattr(server, one.name)) != _default(one)
    }
    return sha256(json.dumps(_json(plain), sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def forbidden(server: ServerConfig) -> tuple[str, ...]:
    """Return the variables of an entry that project files found automatically may not set."""
    return tuple(name for name in server.env if re.fullmatch(_FORBIDDEN, name.strip()))


def describe(server: ServerConfig) -> Iterator[str]:
    """Yield lines that describe an entry to a person, without literal secrets."""
    redact = literal_secrets(server)

    def line(what: str, text: str) -> str:
        # A line break in a value must not look like a new line of the description.
        whole = redact(text).replace("\n", r"\n").replace("\t", r"\t")
        return f"  {what.ljust(8)} {clean(whole)}"

    yield f"server {clean(server.name)!r}"
    if server.command is not None:
        yield line("runs", shlex.join([server.command, *server.args]))
    if server.url is not None:
        yield line("reaches", f"{server.url} ({server.transport})")
    if server.cwd is not None:
        yield line("in", server.cwd)
    yield from (line("env", f"{name}={value}") for name, value in server.env.items())
    if server.inherit_env:
        yield line("gets", f"your own {', '.join(server.inherit_env)}")
    yield from (line("header", f"{name}: {value}") for name, value in server.headers.items())
    if server.auth is not None:
        yield line("login", json.dumps(_json(server.auth), ensure_ascii=False))
    for name in sorted(_special(server)):
        yield line("sets", f"{name}: {json.dumps(_json(getattr(server, name)), ensure_ascii=False)}")


def describe_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines that describe host-wide settings to a person, without secrets."""
    yield "settings for all servers"
    for name in sorted(settings):
        text = json.dumps(_json(masked(settings[name], name)), ensure_ascii=False, default=str)
        refused = f" (refused: {NEVER[name]})" if name in NEVER else ""
        yield f"  {'sets'.ljust(8)} {clean(name)}: {clean(text)}{refused}"


_SHOWN = frozenset(
    ("name", "transport", "command", "args", "env", "cwd", "url", "headers", "auth", "inherit_env")
)


def _special(server: ServerConfig) -> Iterator[str]:
    """Return fields beside the launch that differ from their default."""
    for one in fields(cast("Any", server)):
        if one.name not in _HARMLESS | _SHOWN and getattr(server, one.name) != _default(one):
            yield one.name


def literal_secrets(server: ServerConfig) -> Redactor:
    """Return a redactor for the secrets in an entry: literal values and defaults of references."""
    hidden: list[str] = []
    for text in secrets_in(dict(server.texts())):
        found = references(text)
        hidden += [one.default for one in found if one.default] if found else [text]
    return Redactor(hidden)


def _default(one: Any) -> object:
    return one.default_factory() if one.default_factory is not MISSING else one.default


def _json(value: object) -> object:
    match value:
        case Value():
            return {one.name: _json(getattr(value, one.name)) for one in fields(cast("Any", value))}
        case Mapping():
            return {str(key): _json(item) for key, item in cast("Mapping[Any, object]", value).items()}
        case list() | tuple():
            return [_json(item) for item in cast("list[object]", value)]
        case _:
            return value


_SIZE_LIMIT = 2**20


class Approval(Value):
    """The approved parts of one project file."""

    servers: Mapping[str, str] = EMPTY
    """Hash of each approved server, by name."""
    settings: str | None = None
    """Hash of its host-wide settings."""
    everything: bool = False
    """Whether all of it is approved for this run."""

    def __bool__(self) -> bool:
        return self.everything or bool(self.servers) or self.settings is not None


def approved(file: str) -> Mapping[str, str]:
    """Return the hashes of the approved servers in `file`, by name."""
    return approval_of(file).servers


def approval_of(file: str) -> Approval:
    """Return the approved parts of `file` on this machine."""
    return _read(_place(file)).get(_key(file), Approval())


def approve(file: str, marks: Mapping[str, str], *, settings: str | None = None) -> None:
    """Approve the servers and host-wide settings of `file` with exactly these hashes.

    Raises:
        ConfigError: the approval cannot be saved.
    """
    path = _place(file)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise OSError("something other than a file is in its place; remove it")
        document = {"version": 1, "file": _key(file), "servers": dict(marks), "settings": settings}
        text = json.dumps(document, indent=2)
        replace_file(path, f"{text}\n".encode("utf-8", "surrogatepass"), mode=0o600)
    except OSError as error:
        raise ConfigError(
            f"the approval cannot be written: {error.strerror or error}", file=str(path)
        ) from None


def revoke(file: str) -> bool:
    """Remove the approval of `file`. Return whether there was one."""
    path = _place(file)
    there = path.is_symlink() or path.exists()
    path.unlink(missing_ok=True)
    return there


def approved_files() -> tuple[str, ...]:
    """Return every approved file, in order."""
    folder = _folder()
    found = [_read(path) for path in folder.glob("*.json")] if folder.is_dir() else []
    return tuple(sorted(file for one in found for file in one))


def _folder() -> Path:
    return state_home() / "trust"


def _key(file: str) -> str:
    return os.path.realpath(file)


def _place(file: str) -> Path:
    return _folder() / f"{sha256(_key(file).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"


def _read(path: Path) -> dict[str, Approval]:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return {}
    try:
        raw = os.read(descriptor, _SIZE_LIMIT) if _ours(os.fstat(descriptor)) else b""
    finally:
        os.close(descriptor)
    try:
        data: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return _checked(data)


def _ours(info: os.stat_result) -> bool:
    if not stat.S_ISREG(info.st_mode):
        return False
    return sys.platform == "win32" or (info.st_uid == os.getuid() and not info.st_mode & 0o022)


def _checked(data: object) -> dict[str, Approval]:
    if not isinstance(data, dict):
        return {}
    fields = cast("dict[str, object]", data)
    file, servers = fields.get("file"), fields.get("servers")
    if fields.get("version") != 1 or not isinstance(file, str) or not isinstance(servers, dict):
        return {}
    marks = cast("dict[str, object]", servers)
    known = {name: value for name, value in marks.items() if isinstance(value, str)}
    settings = fields.get("settings")
    return {file: Approval(servers=known, settings=settings if isinstance(settings, str) else None)}


WAYS = frozenset(("tls", "proxy"))


class ProjectFile:
    """The content of a project file found automatically.

    Its servers do not start before they are approved. Its host-wide settings apply only while they are
    approved, except defaults for its own servers, which are part of each entry.
    """

    def __init__(self, source: ConfigSource, approval: Approval) -> None:
        self.source, self.approval = source, approval
        self.entries: dict[str, Entry] = {}
        self.settings: dict[str, Any] = {}
        """Host-wide settings, as they are written."""
        self.fill: dict[str, Any] = {}
        """Defaults for its own servers."""
        self.needs_approval: frozenset[str] = frozenset()
        self.replacing: list[ServerConfig] = []
        """Unapproved servers with the name of a server of the user."""

    def set(self, name: str, value: object) -> None:
        """Add one setting."""
        (self.fill if name in WAYS | DEFAULTS else self.settings)[name] = value

    def complete(self, entry: Entry) -> None:
        """Apply the defaults to the servers of this file."""
        if "url" in entry.fields:
            entry.fields.update(
                {name: self.fill[name] for name in WAYS & self.fill.keys() - entry.fields.keys()}
            )

    def approves(self, server: ServerConfig) -> bool:
        """Whether the entry is approved and may replace one of the user."""

        if forbidden(server):
            return False
        return self.approval.everything or self.approval.servers.get(server.name) == mark(server)

    def keep_out(self, server: ServerConfig, own: ServerConfig) -> None:
        """Record an unapproved server with the name of the user's `own`, unless both entries say the same."""
        if server != own:
            self.replacing.append(server)

    @property
    def in_force(self) -> bool:
        """Whether its host-wide settings are approved."""
        if not self.settings or self.approval.everything:
            return True

        return self.approval.settings == settings_mark(self.settings)

    def warnings(self) -> list[ConfigWarning]:
        """Return warnings for settings and servers that do not apply."""
        file, found = self.source.file, list[ConfigWarning]()
        if not self.in_force:
            names = sorted([*self.settings, *(() if self.approval else self.fill)])
            why = "changed after their approval" if self.approval.settings else "are not approved"
            message = (
                f"host-wide settings are ignored ({', '.join(map(repr, names))}): they {why} on this "
                "machine; read them and approve them with `mooring trust`"
            )
            found.append(ConfigWarning(file=file, message=message))
        for server in self.replacing:
            message = (
                "does not replace your own server of that name: it is not approved on this machine; "
                "read what it would run and approve it with `mooring trust`"
            )
            found.append(ConfigWarning(file=file, server=server.name, message=message))
        return found

    def withheld(self) -> Withheld | None:
        """Return what needs approval, or None."""
        settings = {} if self.in_force else dict(self.settings)
        if not settings and not self.replacing:
            return None
        return Withheld(file=self.source.file or "", settings=settings, servers=tuple(self.replacing))
