"""Diagnosis of a server from its state and messages, with the next command to type.

Errors are written for people; only this module parses their text. A text that it does not recognise gets
general advice, so that rewording an error elsewhere makes the advice less specific, but not wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Literal, TypeAlias

from mooring.config.models import ServerConfig
from mooring.core.types import ServerStatus

__all__ = ["Cause", "Diagnosis", "diagnose", "unpinned_package", "without_advice"]

Cause = Literal[
    "command-not-found",
    "not-executable",
    "no-directory",
    "missing-variable",
    "sdk-mismatch",
    "missing-module",
    "usage",
    "fetch",
    "crash",
    "no-answer",
    "noise",
    "login",
    "refused",
    "unknown-host",
    "tls",
    "no-tls",
    "proxy",
    "http-status",
    "no-mcp",
    "era",
    "unknown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    cause: Cause
    next: str
    """The command to run or the setting to change, in one or two sentences."""


_Advice: TypeAlias = Callable[[ServerConfig, re.Match[str]], str]

_INSTALL = {
    "npx": "install Node.js, which brings it: https://nodejs.org, `brew install node` or `apt install npm`",
    "npm": "install Node.js, which brings it: https://nodejs.org, `brew install node` or `apt install npm`",
    "node": "install it: https://nodejs.org, `brew install node` or `apt install nodejs`",
    "uvx": "install uv, which brings it: `pip install uv`, or see https://docs.astral.sh/uv",
    "uv": "install it: `pip install uv`, or see https://docs.astral.sh/uv",
    "docker": "install Docker and start it: https://docs.docker.com/get-docker",
    "python": "write `python3` as the command, or the full path of an interpreter",
    "bunx": "install Bun, which brings it: https://bun.sh",
    "deno": "install it: https://deno.com",
}


def diagnose(server: ServerConfig, status: ServerStatus) -> Diagnosis | None:
    """Return why a server is unavailable and what to do; None when it is connected, or disabled."""
    if status.state in ("connected", "disabled"):
        return None
    if status.state == "needs-auth":
        return Diagnosis(cause="login", next=_login(server, status.error or ""))
    text = status.error or ""
    if not text:
        return Diagnosis(cause="no-answer", next="It is still starting: allow more time with `--timeout 60`.")
    for cause, pattern, advice in _CASES:
        if (found := pattern.search(text)) is not None:
            return Diagnosis(cause=cause, next=advice(server, found))
    return Diagnosis(cause="unknown", next=_look(server))


def without_advice(reason: str, name: str) -> str:
    """Return the error of a server without its name and without the advice that `Diagnosis.next` repeats."""
    plain = reason.removeprefix(f"{name!r}: ").removesuffix(f"; log in: `mooring login {name}`")
    return plain.removesuffix("; install it, or write its full path")


def unpinned_package(server: ServerConfig) -> str | None:
    """Return the package that the server's command installs without a pinned version, or None."""
    runner = _program(server)
    if runner not in ("npx", "bunx", "uvx", "pipx"):
        return None
    words = list(server.args)
    if runner == "pipx" and words[:1] == ["run"]:
        words = words[1:]
    package = _package(words)
    if package is None or package.startswith((".", "/", "~", "$", "git+", "http")):
        return None
    bare = package.removeprefix("@")  # a scope of npm, as in @scope/name@1.2.3
    version = re.search(r"@(.+)$|==(.+)$", bare)
    pinned = version is not None and (version[1] or version[2]) not in ("latest", "next")
    return None if pinned else package


def _package(words: list[str]) -> str | None:
    """Return the package in the arguments of a runner: named by an option, or the first argument that is not
    an option."""
    takes_value = ("--with", "--python", "-p", "--index-url", "--registry")
    skip = False
    for number, word in enumerate(words):
        if skip:
            skip = False
        elif word in ("--from", "--package", "--spec"):
            return words[number + 1] if number + 1 < len(words) else None
        elif word.startswith("-"):
            skip = word in takes_value
        else:
            return word
    return None


def _program(server: ServerConfig) -> str:
    name = re.split(r"[/\\]", server.command or "")[-1].lower()
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", name)


def _install(server: ServerConfig, found: re.Match[str]) -> str:
    program = _program(server)
    if program in _INSTALL:
        return f"{program} is not on the PATH: {_INSTALL[program]}."
    return f"Install {server.command}, or write its full path as `command`: `which {program}` shows it."


def _export(server: ServerConfig, found: re.Match[str]) -> str:
    names = dict.fromkeys(re.findall(r"\$\{(?:env:)?([A-Za-z_]\w*)\}", found.string))
    if names:
        return "; ".join(f"export {name}=…" for name in names)
    if (entry := re.search(r"\$\{keyring:([^}]+)", found.string)) is not None:
        return f"Store it: `keyring set mooring {quote(entry[1])}`."
    return "Make the file or value that the entry refers to, or correct the reference."


def _environment(server: ServerConfig, found: re.Match[str]) -> str:
    """Return the diagnosis for a server that names a missing variable on stderr."""
    matches = _VARIABLE.finditer(found.string)
    names = list(dict.fromkeys(name for match in matches for name in _enumerated(match)))
    new = [name for name in names[:_MOST_VARIABLES] if name not in server.env]
    if not new:
        return f"`env` of its entry sets {names[0]}: check the value."
    entry = ", ".join(f'"{name}": "${{{name}}}"' for name in new)
    export = "; ".join(f"export {name}=…" for name in new)
    return (
        f'Give its entry "env": {{{entry}}}, then `{export}`. Servers inherit only a few variables of your '
        "environment."
    )


def _enumerated(match: re.Match[str]) -> list[str]:
    """Return the name that was found and those in the same enumeration: `A_KEY, B_KEY and C_KEY`."""
    start, end = match.span(match.lastindex or 0)
    before = _NAMES_BEFORE.search(match.string, max(start - _LONGEST_LIST, 0), start)
    after = _NAMES_AFTER.match(match.string, end, end + _LONGEST_LIST)
    listed = (before[0] if before else "", match.string[start:end], after[0] if after else "")
    return re.findall(_NAME, ", ".join(listed))


def _settings(server: ServerConfig, found: re.Match[str]) -> str:
    """Return the diagnosis for a server that reads its settings with pydantic: each field is a variable,
    perhaps with a prefix."""
    name = found[1].upper()
    return (
        f'It needs the setting {found[1]!r}. Give its entry "env": {{"{name}": "${{{name}}}"}} (its manual '
        f"may name a prefix), then `export {name}=…`."
    )


def _older_sdk(server: ServerConfig, found: re.Match[str]) -> str:
    return _with_sdk(server, "It was written for version 1 of the MCP SDK and got version 2.", "mcp<2")


def _newer_sdk(server: ServerConfig, found: re.Match[str]) -> str:
    return _with_sdk(server, "It was written for version 2 of the MCP SDK and got version 1.", "mcp>=2")


def _with_sdk(server: ServerConfig, why: str, wanted: str) -> str:
    match _program(server):
        case "uvx":
            return f"{why} Put `--with '{wanted}'` before the package in `args`."
        case "uv":
            return f"{why} Put `--with '{wanted}'` after `run` in `args`."
        case _:
            return f"{why} In its environment: `pip install '{wanted}'`."


def _usage(server: ServerConfig, found: re.Match[str]) -> str:
    package = _package(list(server.args)) if _program(server) in ("npx", "bunx", "uvx", "pipx") else None
    asked = " ".join(word for word in (server.command, package or "…", "--help") if word)
    return (
        f"It was started with wrong arguments: correct `args` of its entry. `{asked}` shows which it takes."
    )


_CERTIFICATES = {
    "npx": ("NODE_EXTRA_CA_CERTS",),
    "npm": ("NODE_EXTRA_CA_CERTS",),
    "node": ("NODE_EXTRA_CA_CERTS",),
    "bunx": ("NODE_EXTRA_CA_CERTS",),
    "uvx": ("SSL_CERT_FILE", "SSL_CERT_DIR"),
    "uv": ("SSL_CERT_FILE", "SSL_CERT_DIR"),
}


def _own_certificates(server: ServerConfig, found: re.Match[str]) -> str:
    names = _CERTIFICATES.get(_program(server), ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"))
    return (
        f"It does not trust a certificate. If your network has its own authority, {_inherit(names)}, and "
        f"`export {names[0]}=/path/to/ca.pem`."
    )


def _fetch(server: ServerConfig, found: re.Match[str]) -> str:
    registry = {
        "npx": ("NPM_CONFIG_REGISTRY",),
        "npm": ("NPM_CONFIG_REGISTRY",),
        "uvx": ("UV_INDEX_URL", "UV_DEFAULT_INDEX"),
        "uv": ("UV_INDEX_URL", "UV_DEFAULT_INDEX"),
    }.get(_program(server), ())
    names = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", *registry)
    return f"Its package cannot be fetched. Check your network; behind a proxy or mirror, {_inherit(names)}."


def _inherit(names: Sequence[str]) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return f'let it have your settings: "inherit_env": [{listed}] in its entry'


def _module(server: ServerConfig, found: re.Match[str]) -> str:
    name = found[1]
    if _program(server) in ("node", "npx", "npm"):
        return (
            f"Its installation is broken: `npm install {name}` in its folder, or `npm cache clean --force`."
        )
    if _program(server) in ("uvx", "uv"):
        return f"Put `--with {name.partition('.')[0]}` before the package in `args`."
    return f"In its environment: `{server.command} -m pip install {name.partition('.')[0]}`."


def _look(server: ServerConfig) -> str:
    if server.command is None:
        return "See the log: `mooring list --verbose`."
    return "See everything that it prints: `mooring list --verbose`."


def _login(server: ServerConfig, error: str) -> str:
    for pattern, advice in _EXCHANGES:
        if re.search(pattern, error):
            return advice
    if "`mooring login" in error:
        return f"Log in: `mooring login {server.name}`."
    if "OAuth login cannot be used" in error:
        return "Ask the server's operator to correct its OAuth metadata, or give it a token in `headers`."
    variable = re.sub(r"\W+", "_", server.name, flags=re.ASCII).upper().strip("_") or "SERVER"
    return (
        f'Give its entry "headers": {{"Authorization": "Bearer ${{{variable}_TOKEN}}"}}, '
        f"then `export {variable}_TOKEN=…`."
    )


_CLIENT = r".*\binvalid_client\b"
_EXCHANGES = (
    ("step 1 of 2, " + _CLIENT, "Correct `client_id` and the secret or key in `idp` of its `auth`."),
    (
        r"step 1 of 2, .*\binvalid_grant\b",
        "The identity provider refused the user's token: sign in there again, and renew what `subject_token` "
        "refers to. Gateway clients send a new token.",
    ),
    (
        r"step 1 of 2, ",
        "Ask the administrator of the identity provider to allow this client, user and server.",
    ),
    (
        r"step 1 of 2: ",
        "The identity provider issued an assertion for something else: compare `issuer` and `client_id` of "
        "`auth` with what is registered there for this server, and the clocks.",
    ),
    ("step 2 of 2, " + _CLIENT, "Correct `client_id` and the secret or key in its `auth`."),
    (
        r"step 2 of 2, ",
        "Ask the server's operator whether its authorization server trusts this identity provider.",
    ),
    (
        r"the workload's JWT",
        "Have the platform issue a JWT for this authorization server alone (its `aud`), and name it in "
        "`assertion` of its `auth`.",
    ),
    (r"the client credentials grant", "Correct `client_id` and the secret or key in its `auth`."),
    ("the token exchange at" + _CLIENT, "Correct `client_id` and the secret or key in `exchange`."),
    (
        r"the token exchange at .*\binvalid_(?:target|scope)\b",
        "Correct `audience` and `scopes` in `exchange` of its `auth`, or have them allowed there.",
    ),
    (r"the token exchange at", "Ask the operator of the token service to allow this client and its users."),
    (
        r"no token (?:that could be exchanged|to exchange)",
        "Tokens of gateway clients are exchanged: serve it with `gateway.oauth`, and for listing its tools "
        "give a token of your own as `subject_token`.",
    ),
    (r"`private_key`", "Name the file of the private key: `private_key: ${file:client.pem}`."),
    (r"could not be read again", "Correct the file or program that the entry refers to."),
)
"""Meaning of a refused token, by step, and what to do."""


def _status(server: ServerConfig, found: re.Match[str]) -> str:
    match found[1]:
        case "403":
            return "The login is valid but may not do this: ask for the right, or use another token."
        case "404" | "405":
            return "Check the path of its `url`: it is often /mcp, or /sse for old servers."
        case "429":
            return "It is rate-limited: wait, or lower `max_concurrency`."
        case code if code.startswith("5"):
            return "The server failed: check its own log, or try again later."
        case _:
            return "Check its `url` and `headers`."


def _says(text: str) -> _Advice:
    return lambda server, found: text


_SAID = r"(?s:(?:on stderr|it wrote):\n.*?)"
"""Text before the output of a server."""
_NAME = r"['\"`$]?\{?\b([A-Z][A-Z0-9]*_[A-Z0-9_]+|[A-Z]*(?:KEY|TOKEN|SECRET|PASSWORD))\b\}?['\"`]?"
_VARIABLE = re.compile(
    rf"{_NAME}\s+(?:env\w*\s+(?:var\w*\s+)?)?(?:(?:is|are|was|has|must|should|needs?)\s+)?(?:not\s+(?:been\s+)?"
    r"(?:set|defined|provided|found|configured|specified|present)|required|missing|undefined|unset|empty"
    r"|(?:to\s+)?be\s+(?:set|provided|defined|specified|configured))"
    rf"|(?i:(?:missing|required?s?|set|provide|define|export|needs?|expects?|specify|without|no)\s+(?:\w+\s+){{0,3}}"
    rf"(?:env\w*(?:\s+var\w*)?|variables?|value\s+for)\s*:?\s*)(?-i:{_NAME})"
    rf"|(?i:env\w*\s+var\w*\s+){_NAME}(?i:\s+(?:is\s+|was\s+)?(?:not\s+(?:set|found|defined|provided)|missing|required|unset))"
    rf"|(?i:env\w*\s+var\w*\s+(?:is\s+|was\s+)?(?:not\s+(?:set|found|defined|provided)|missing|required)\s*:\s*){_NAME}"
    rf"|(?i:(?:not\s+(?:found|set|provided|configured)|missing|required)\b[^\n]{{0,60}}\bset\s+(?:the\s+)?){_NAME}"
    rf"|(?i:please\s+(?:set|provide|export|define)\s+(?:\w+\s+){{0,2}}){_NAME}"
    rf"|KeyError:\s+{_NAME}|[Mm]issing\s+(?:required\s+)?{_NAME}"
)
"""Messages that servers print when a variable is missing; the groups match its name."""
_JOINT = r"(?:\s*,\s*(?:and\s+)?|\s+(?:and|&)\s+)"
_NAMES_BEFORE = re.compile(rf"(?:{_NAME}{_JOINT})+['\"`$]?\{{?$")
_NAMES_AFTER = re.compile(rf"\}}?['\"`]?(?:{_JOINT}{_NAME})+")
_LONGEST_LIST = 200
_MOST_VARIABLES = 5


def _cases(*cases: tuple[Cause, str, _Advice]) -> list[tuple[Cause, re.Pattern[str], _Advice]]:
    return [(cause, re.compile(pattern), advice) for cause, pattern, advice in cases]


_CASES = _cases(
    ("missing-variable", r"no value for \$\{", _export),
    ("command-not-found", r"^the command .* was not found", _install),
    (
        "no-directory",
        r"^its working directory (.*) does not exist",
        _says("Correct `cwd`, or make the directory."),
    ),
    (
        "not-executable",
        r"^the command .* may not be run",
        lambda server, _: f"chmod +x {server.command}",
    ),
    ("era", r"no common protocol version", _says("Upgrade the older of the two: `pip install -U mooring`.")),
    (
        "sdk-mismatch",
        r"No module named '?(?:mcp\.server\.(?:mcpserver|caching|subscriptions)|mcp\.client\.subscriptions"
        r"|mcp_types)"
        r"|cannot import name '(?:MCPServer|MCPError|Client|streamable_http_client)' from '?mcp\b"
        r"|object has no attribute '(?:input_schema|is_error|structured_content|next_cursor)'",
        _newer_sdk,
    ),
    (
        "sdk-mismatch",
        r"No module named '?mcp\.server\.fastmcp|cannot import name '\w+' from '?mcp\b|\bpin 'mcp<2'"
        r"|'Server' object has no attribute '(?:list_|call_|get_|read_|subscribe_|set_|progress_)\w*'"
        r"|object has no attribute '(?:inputSchema|isError|structuredContent|nextCursor)'",
        _older_sdk,
    ),
    ("missing-variable", rf"{_SAID}(?:{_VARIABLE.pattern})", _environment),
    (
        "missing-variable",
        rf"{_SAID}validation errors? for \w*\n(\w+)\n\s+[Ff]ield required",
        _settings,
    ),
    ("missing-module", r"No module named '?([\w.]+)", _module),
    ("missing-module", r"Cannot find (?:module|package) '([^']+)'", _module),
    (
        "crash",
        r"(?:E404|404 Not Found|No solution found|was not found in the package registry)",
        _says("There is no such package or version: correct its name in `args`."),
    ),
    (
        "tls",
        rf"{_SAID}(?:CERTIFICATE_VERIFY_FAILED|[Cc]ertificate verify failed|invalid peer certificate"
        r"|UnknownIssuer|SELF_SIGNED_CERT|DEPTH_ZERO_SELF|UNABLE_TO_(?:GET_ISSUER|VERIFY)"
        r"|[Ss]elf[- ]signed certificate|unable to get (?:local )?issuer certificate"
        r"|unable to verify the first certificate)",
        _own_certificates,
    ),
    (
        "fetch",
        rf"{_SAID}(?:[Ff]ailed to fetch|error sending request for url|registry\.npmjs\.org|pypi\.org/simple"
        r"|npm (?:ERR!|error)[^\n]*(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|network))",
        _fetch,
    ),
    (
        "usage",
        rf"{_SAID}(?:[Uu]sage:|USAGE:|the following arguments are required|unrecognized arguments"
        r"|[Uu]nknown (?:option|argument|flag|command)|unexpected argument"
        r"|[Mm]issing (?:required )?(?:argument|option|parameter)|[Nn]o such option|required argument)",
        _usage,
    ),
    ("crash", r"^the server (?:exited|was ended|closed)", lambda server, _: _look(server)),
    (
        "noise",
        r"on stdout, where only messages belong",
        _says("It prints text that is not a message: turn off its banner or log. Is it an MCP server?"),
    ),
    (
        "no-answer",
        r"^no answer within|^it was not connected in time",
        _says(
            'Allow more time with "connect_timeout": "120s" in its entry, or see `mooring list --verbose`.'
        ),
    ),
    ("no-answer", r"`list_timeout`", _says('Allow more time: "list_timeout": "120s" in its entry.')),
    (
        "no-tls",
        r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE",
        _says("It does not speak TLS there: write http:// instead of https:// in its `url`."),
    ),
    ("proxy", r"the proxy requires a login", _says('Give it: "proxy": "http://USER:${PASSWORD}@HOST:PORT".')),
    (
        "proxy",
        r"^the proxy |'proxy'",
        _says("Correct `proxy` of its entry, or HTTPS_PROXY; `none` uses no proxy."),
    ),
    (
        "tls",
        r"'tls\.\w+'",
        _says("Correct `tls` of its entry; paths are relative to the file that names them."),
    ),
    (
        "tls",
        r"client certificate",
        _says('If you have one, set it: "tls": {"cert": "me.pem", "key": "me.key"} in its entry.'),
    ),
    (
        "tls",
        r"(?i:certificate|\bssl\b|\btls\b)",
        _says(
            'Its certificate is not trusted here. If it is your own: "tls": {"ca": "/path/to/ca.pem"} in its '
            "entry, or `export SSL_CERT_FILE=/path/to/ca.pem` for all."
        ),
    ),
    (
        "unknown-host",
        r"cannot be reached: .*(?i:name or service|nodename|resol|getaddrinfo|no address)",
        _says("There is no such host: correct the name in its `url`, or check your network."),
    ),
    (
        "refused",
        r"cannot be reached",
        _says("Nothing listens there: start the server, or correct host and port in its `url`."),
    ),
    ("http-status", r"\bHTTP (\d{3})", _status),
    (
        "no-mcp",
        r"is of type .*, not JSON",
        _says("That is not an MCP endpoint: correct the path in its `url`."),
    ),
)
