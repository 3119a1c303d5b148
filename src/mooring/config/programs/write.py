"""One of our servers as another program wants it written. References are rewritten, never resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.config.models import ServerConfig
from mooring.config.programs.model import Outbound, Program, UnfitError
from mooring.config.programs.references import InexpressibleError, outward
from mooring.config.references import references
from mooring.config.secret_scan import is_secret, masked

__all__ = ["written"]

_OURS_ALONE = (
    *("start", "isolation", "idle_timeout", "max_concurrency", "idempotent", "approve", "auth", "pins"),
    *("always", "max_queue", "transforms"),
)


def written(server: ServerConfig, program: Program) -> tuple[dict[str, Any], list[str]]:
    """The entry for `program`, and what it does not say any more.

    Raises:
        UnfitError: the program cannot have this server, with the reason.
    """
    out = program.out
    if out is None:
        raise UnfitError(f"{program.title} has no documented file to write to")
    if server.disabled and out.switch is None:
        raise UnfitError(f"is disabled, which {program.title} has no word for")
    notes: list[str] = []
    entry = dict(_base(server, program, out))
    if out.named:
        entry["name"] = server.name
    entry |= _launch(server, program, out, notes) if server.command else _reach(server, program, out, notes)
    entry |= _limits(server, out, notes)
    if out.switch is not None and (server.disabled or out.switch in entry):
        entry[out.switch] = server.disabled == (out.switch == "disabled")
    return entry, notes


def _base(server: ServerConfig, program: Program, out: Outbound) -> Mapping[str, Any]:
    if server.command is not None:
        return out.stdio
    if out.http is None:
        raise UnfitError(f"{program.title} runs programs and reaches no URL; --gateway brings it there")
    if server.transport == "sse":
        if out.sse is None:
            raise UnfitError(f"{program.title} does not speak SSE; --gateway brings it there")
        return out.sse
    return out.http


def _launch(server: ServerConfig, program: Program, out: Outbound, notes: list[str]) -> dict[str, Any]:
    command = _whole(server.command or "", "command", program, out)
    args = [_whole(word, "args", program, out) for word in server.args]
    if masked(list(server.args)) != list(server.args):
        raise UnfitError("has a secret among its arguments; write it as ${NAME} first")
    name = out.names.get
    if out.joined:
        entry: dict[str, Any] = {name("command", "command"): [command, *args]}
    else:
        entry = {name("command", "command"): command, name("args", "args"): args}
    env, inherited = _env(server, program, out, notes)
    if env:
        entry[name("env", "env")] = env
    if inherited and "inherit_env" in out.names:
        entry[out.names["inherit_env"]] = inherited
    elif inherited:
        notes.append(f"not carried over: inherit_env ({', '.join(inherited)})")
    if server.cwd is not None and "cwd" in out.names:
        entry[out.names["cwd"]] = _whole(server.cwd, "cwd", program, out)
    elif server.cwd is not None:
        notes.append("not carried over: cwd, so it runs wherever that program is")
    return entry


def _env(
    server: ServerConfig, program: Program, out: Outbound, notes: list[str]
) -> tuple[dict[str, str], list[str]]:
    """The variables, and the names of those that come from the program's own environment."""
    by_name = "inherit_env" in out.names
    inherited = [
        *server.inherit_env,
        *(name for name, value in server.env.items() if by_name and value == f"${{{name}}}"),
    ]
    rest = {name: value for name, value in server.env.items() if name not in inherited}
    return _texts(rest, "env", program, out, notes), inherited


def _reach(server: ServerConfig, program: Program, out: Outbound, notes: list[str]) -> dict[str, Any]:
    url = server.url or ""
    if masked(url) != url:
        raise UnfitError("has a secret in its address; write it as ${NAME} first")
    key = out.sse_url if server.transport == "sse" and out.sse_url else out.names.get("url", "url")
    entry: dict[str, Any] = {key: _whole(url, "url", program, out)}
    headers = dict(server.headers)
    by_variable: dict[str, str] = {}
    for name, value in server.headers.items() if out.variable_headers else ():
        found = references(value)
        if len(found) == 1 and found[0].kind == "env" and found[0].default is None:
            if name.lower() == "authorization" and value == f"Bearer {found[0]}":
                entry["bearer_token_env_var"] = found[0].name
                del headers[name]
            elif value == str(found[0]):
                by_variable[name] = found[0].name
                del headers[name]
    if texts := _texts(headers, "headers", program, out, notes):
        entry[out.names.get("headers", "headers")] = texts
    if by_variable:
        entry["env_http_headers"] = by_variable
    return entry


def _texts(
    given: Mapping[str, str], part: str, program: Program, out: Outbound, notes: list[str]
) -> dict[str, str]:
    """What can be said of a mapping; the rest is left out with a note, for the user to fill in there."""
    texts: dict[str, str] = {}
    for name, value in given.items():
        if is_secret(name, value):
            notes.append(f"{part}.{name} holds a secret, which is not copied: set it in {program.title}")
            continue
        try:
            texts[name] = outward(value, program.syntax if part in out.expands else "none")
        except InexpressibleError as reference:
            notes.append(
                f"{part}.{name} is {reference}, which {program.title} cannot look up: set it there yourself"
            )
            continue
        if program.syntax != "shell" and any(found.default is not None for found in references(value)):
            notes.append(f"{part}.{name} has lost its default")
    return texts


def _whole(text: str, part: str, program: Program, out: Outbound) -> str:
    try:
        return outward(text, program.syntax if part in out.expands else "none")
    except InexpressibleError as reference:
        raise UnfitError(f"has {reference} in '{part}', which {program.title} cannot look up") from None


def _limits(server: ServerConfig, out: Outbound, notes: list[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    defaults = ServerConfig(name="any", command="any")
    for name, key in (("call_timeout", out.call_timeout), ("connect_timeout", out.connect_timeout)):
        value: float = getattr(server, name)
        if value != getattr(defaults, name):
            if key is None:
                notes.append(f"not carried over: {name}")
            else:
                amount = value * 1000 if key[1] == "ms" else value
                entry[key[0]] = int(amount) if amount == int(amount) else amount
    for name in ("allow", "deny", "description"):
        value_given: Any = getattr(server, name)
        if value_given != getattr(defaults, name):
            if name in out.names:
                entry[out.names[name]] = value_given if isinstance(value_given, str) else list(value_given)
            elif name != "description":
                notes.append(f"not carried over: {name}, so more tools are seen there")
    lost = [name for name in _OURS_ALONE if getattr(server, name) != getattr(defaults, name)]
    if lost:
        notes.append(f"not carried over: {', '.join(lost)}")
    return entry
