"""Effects of a project file, and the merge of its settings with the user's."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from hashlib import sha256
from typing import Any, cast

from mooring.config.models import Conformance, HostConfig, ServerConfig
from mooring.config.references import references
from mooring.config.secret_scan import masked
from mooring.core.redact import Redactor, secrets_in
from mooring.core.text import clean
from mooring.core.types import EMPTY
from mooring.core.uris import DANGEROUS
from mooring.core.value import Value, replace

NEVER: Mapping[str, str] = {
    "gateway": "the gateway is configured by your own file",
    "audit": "project files found automatically may not set output paths",
    "artifacts": "project files found automatically may not set output paths",
}
"""Settings that project files found automatically may not have, even if approved, and why."""

_CONFORMANCE: Mapping[Conformance, int] = {"off": 0, "warn": 1, "strict": 2}
_NOTHING = ("-",)
"""An allowlist that matches no scheme."""


def settings_mark(settings: Mapping[str, Any]) -> str:
    """Return a hash of host-wide settings as written."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def combined(
    mine: HostConfig, theirs: HostConfig, given: Mapping[str, Any]
) -> tuple[HostConfig, tuple[str, ...]]:
    """Return the user's settings with those of an approved project file, and the names of rejected ones.

    Args:
        mine: The user's settings; a setting that the user leaves out has its default.
        theirs: The project's settings.
        given: The settings in the project file, as written.
    """
    changes: dict[str, Any] = {name: getattr(theirs, name) for name in given}
    refused: list[str] = []

    def keep(name: str, value: object) -> None:
        changes[name] = value
        if value != getattr(theirs, name):
            refused.append(name)

    if "policy" in given:
        changes["project_policy"] = changes.pop("policy")  # both apply, the stricter one wins
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
    if "scripts" in given and mine.scripts.writes == "deny":
        keep("scripts", replace(theirs.scripts, writes="deny"))
    if "context" in given:
        said = "passthrough" in cast("Mapping[str, Any]", given["context"])
        passthrough = mine.context.passthrough and (theirs.context.passthrough or not said)
        changes["context"] = replace(theirs.context, passthrough=passthrough)
        if theirs.context.passthrough and not passthrough:
            refused.append("context.passthrough")
    return HostConfig.holding({**vars(mine), **changes}), tuple(refused)


def _schemes(mine: HostConfig, theirs: HostConfig) -> tuple[str, ...]:
    """Return the schemes that both lists allow; an empty list allows all but the dangerous ones."""
    allowed, wanted = mine.resource_uri_allowlist, theirs.resource_uri_allowlist
    if not wanted:
        return allowed
    if not allowed:
        return tuple(scheme for scheme in wanted if _plain(scheme) not in DANGEROUS)
    both = {_plain(scheme) for scheme in allowed}
    return tuple(scheme for scheme in wanted if _plain(scheme) in both) or _NOTHING


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

_FORBIDDEN = re.compile(
    # which libraries a program loads
    r"LD_.+|DYLD_.+|GCONV_PATH|GLIBC_TUNABLES"
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
    r"|(?:HTTPS?|ALL)_PROXY|MOORING_.+",
    re.IGNORECASE,
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
    return tuple(name for name in server.env if _FORBIDDEN.fullmatch(name.strip()))


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
