"""Secret references resolved to values, when a server is connected."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from mooring.config.models import ConfigSource, ServerConfig, Target
from mooring.config.references import Lookup, Reference, expand, references
from mooring.config.validate import check_header, check_url, shown
from mooring.core.redact import Secret, secrets_in
from mooring.errors import ConfigError, ConnectError, raise_alone

GetSecret = Callable[[str], str | None]
"""The application's lookup of secrets; returns None for an unknown name."""

_FILE_LIMIT = 2**20
_COMMAND_TIMEOUT = 10.0
_PUBLIC = frozenset(
    ("HOME", "HOSTNAME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "TMPDIR", "USER")
)
"""Variables that are not secret. The values of all others are redacted."""


def resolve(server: ServerConfig, lookup: Lookup) -> Target:
    """Return the target with all references resolved.

    Raises:
        ConfigError: references have no value or an unsuitable one. It names all of them.
    """
    secrets: set[str] = set()
    values: dict[str, str] = {}
    problems: list[str] = []

    def cached_lookup(reference: Reference) -> str | None:
        value = lookup(reference)
        if value and not (reference.kind == "env" and reference.name in _PUBLIC):
            secrets.add(value)
        return value

    def filled_in(text: str) -> str:
        if not isinstance(text, Secret):
            return expand(text, cached_lookup)
        secrets.add(text.reveal())
        return text.reveal()

    for place, text in server.texts():
        try:
            values[place] = filled_in(text)
            _check(place, values[place])
        except (ConfigError, ValueError) as error:
            problem = error.problem if isinstance(error, ConfigError) else str(error)
            problems.append(f"field {shown(place)}: {problem}")
    if problems:
        raise ConfigError("; ".join(problems), file=server.file, place=f"server {shown(server.name)}")
    for name in server.inherit_env:
        cached_lookup(Reference(kind="env", name=name))
    secrets.update(secrets_in(values))
    secrets.discard("")
    return Target(
        command=values.get("command"),
        args=tuple(values[f"args[{i}]"] for i in range(len(server.args))),
        env=MappingProxyType({name: values[f"env.{name}"] for name in server.env}),
        cwd=_from_file(server.source, values.get("cwd")),
        url=values.get("url"),
        headers=MappingProxyType({name: values[f"headers.{name}"] for name in server.headers}),
        auth=_filled("auth", server.auth or {}, values),
        tls=_tls(server, values),
        proxy=values.get("proxy"),
        secrets=tuple(sorted(secrets, key=lambda value: (-len(value), value))),
    )


def default_lookup(
    env: Mapping[str, str], get_secret: GetSecret | None = None, *, source: ConfigSource | None = None
) -> Lookup:
    """Looks up variables in `get_secret` and then in `env`; reads files and the keyring, and runs programs.

    Files are relative to `source`. Programs are run only for entries in files that the user wrote or named,
    not for project files found automatically or entries made in Python.
    """
    written = source or ConfigSource()

    def lookup(reference: Reference) -> str | None:
        match reference.kind:
            case "env":
                value = get_secret(reference.name) if get_secret else None
                return env.get(reference.name) if value is None else value
            case "file":
                return _file(reference, written)
            case "keyring":
                return _keyring(reference)
            case "cmd":
                return _command(reference, written, env)

    return lookup


def _filled(place: str, given: Mapping[str, Any], values: Mapping[str, str]) -> Mapping[str, Any]:
    """Return nested settings with the resolved texts."""
    return MappingProxyType(
        {
            name: _filled(f"{place}.{name}", cast("Mapping[str, Any]", item), values)
            if isinstance(item, Mapping)
            else values.get(f"{place}.{name}", item)
            for name, item in given.items()
        }
    )


def _tls(server: ServerConfig, values: Mapping[str, str]) -> Mapping[str, str]:
    tls = {name: values[f"tls.{name}"] for name in server.tls or ()}
    if tls:
        from mooring.config.network import PATHS

        tls |= {name: _from_file(server.source, tls[name]) or "" for name in PATHS if name in tls}
    return MappingProxyType(tls)


def _check(place: str, value: str) -> None:
    """Check resolved values, which may contain a line break or another host."""
    if "\0" in value:
        raise ValueError("must not hold a NUL character")
    if place == "url":
        check_url(value)
    elif place.startswith("headers."):
        check_header(place.removeprefix("headers."), value)
    elif place == "proxy":
        from mooring.config.network import read_proxy

        read_proxy(value)


def _from_file(source: ConfigSource, cwd: str | None) -> str | None:
    """Return the working directory, resolved relative to the file of the entry."""
    if cwd is None or source.file is None:
        return cwd
    return str(Path(source.file).parent / os.path.expanduser(cwd))


def _file(reference: Reference, source: ConfigSource) -> str | None:
    base = Path(source.file).parent if source.file else Path.cwd()
    path = base / os.path.expanduser(reference.name)
    if not os.path.isfile(path):
        return None
    try:
        with path.open("rb") as stream:
            raw = stream.read(_FILE_LIMIT + 1)
    except OSError as error:
        raise_alone(ConfigError(f"{reference} cannot be read: {error.strerror or type(error).__name__}"))
    if len(raw) > _FILE_LIMIT:
        raise ConfigError(f"{reference} is larger than 1 MiB, too large for a secret")
    return _line(raw, str(reference))


def _keyring(reference: Reference) -> str | None:
    try:
        keyring: Any = import_module("keyring")  # an extra, and slow to import
    except ImportError:
        raise_alone(ConfigError(f"{reference} needs the keyring extra: pip install 'mooring[keyring]'"))
    except Exception as error:
        raise_alone(ConfigError(f"{reference} cannot be read: {type(error).__name__}"))
    try:
        value: str | None = keyring.get_password("mooring", reference.name)
        useless = value is None and keyring.get_keyring().priority <= 0
    except Exception as error:  # backends raise any exception
        raise_alone(ConfigError(f"{reference} cannot be read: {type(error).__name__}"))
    if useless:  # the backends `null` and `fail`
        raise ConfigError(
            f"{reference} cannot be read: this system has no keyring; use ${{VAR}} or ${{file:…}} here"
        )
    return value


def _command(reference: Reference, source: ConfigSource, env: Mapping[str, str]) -> str | None:
    name = str(Reference(kind="cmd", name=reference.name.split()[0] + " …"))
    if source.scope not in ("user", "explicit"):
        raise ConfigError(
            f"{name} is run only for the user's own file or one named with --config, not for project "
            "files found automatically or entries made in Python; use ${VAR} or ${file:…} here"
        )
    import shlex

    try:
        done = subprocess.run(
            shlex.split(reference.name),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise_alone(ConfigError(f"{name} did not respond within {_COMMAND_TIMEOUT:g} s"))
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "a wrong quote"
        raise_alone(ConfigError(f"{name} cannot be run: {reason}"))
    if done.returncode != 0:
        raise ConfigError(f"{name} failed with exit code {done.returncode}")
    return _line(done.stdout, name)


def _line(raw: bytes, name: str) -> str:
    """Return a secret without the trailing newline."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise_alone(ConfigError(f"{name} is not UTF-8 text"))
    return text.removesuffix("\n").removesuffix("\r")


async def resolve_within(limit: float, server: ServerConfig, lookup: Lookup, *, slow: bool) -> Target:
    """Run `resolve` without blocking the loop. `slow`: `get_secret` may block too.

    Raises:
        ConfigError: see `resolve`.
        ConnectError: it took longer than `limit` seconds.
    """
    blocking = [reference for reference in _references(server) if reference.kind != "env"]
    if not (blocking or slow):
        return resolve(server, lookup)
    from mooring.concurrency import in_own_thread

    try:
        async with asyncio.timeout(limit):
            return await in_own_thread(resolve, server, lookup)
    except TimeoutError:
        names = ", ".join(sorted({f"${{{reference.kind}:…}}" for reference in blocking})) or "get_secret"
        raise ConnectError(
            f"its secrets were not resolved within {limit:g} s; check {names}, or raise `connect_timeout`",
            server=server.name,
        ) from None


def _references(server: ServerConfig) -> list[Reference]:
    return [reference for _, text in server.texts() for reference in references(text)]
