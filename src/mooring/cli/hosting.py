"""Open the host of one command, wait for its servers and report those that are missing."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from mooring.cli.options import Options, UsageError, pair
from mooring.cli.output import Output
from mooring.cli.progress import one_line, show_progress, summary
from mooring.core.text import clean, nearest
from mooring.errors import ConfigError, UnknownServer, UnknownTool

if TYPE_CHECKING:
    import logging
    from argparse import Namespace

    from mooring.config.models import HostConfig, ServerConfig
    from mooring.core.types import Snapshot, Tool
    from mooring.host import Host
    from mooring.policy import Approver
    from mooring.transport.forwarding import ClientBridge


@asynccontextmanager
async def open_host(
    options: Options,
    out: Output,
    *,
    style: Any = None,
    servers: Sequence[str] = (),
    idle: bool = False,
    lock: bool = True,
    on_approval: Approver | None = None,
    on_elicit: Any = None,
    on_auth: Any = None,
    relay: ClientBridge | None = None,
    declare: bool = True,
    one_off: ServerConfig | None = None,
    prepare: Callable[[Host], Awaitable[None]] | None = None,
) -> AsyncGenerator[Host]:
    """Open the host that the options describe. Its servers start in the background.

    Args:
        options: Options of the command line.
        out: Receives the warnings.
        style: Naming style of tools; None: as configured.
        servers: Names that must be configured.
        idle: Start each server only when it is needed.
        lock: Use the lock or the cache, unless the options forbid it.
        on_approval: Called before a call that needs an approval.
        on_elicit: Answers elicitations of servers.
        on_auth: Shows logins that a call needs.
        relay: Receives requests of servers for a gateway client. Every command has one, so that all declare
            the same capabilities and get the same tools.
        declare: False: declare no client capabilities, like an application without `on_elicit`.
        one_off: The only server, instead of those in the files.
        prepare: Called with the host before its servers start.

    Raises:
        ConfigError: a file cannot be read, or has no usable entry.
        UnknownServer: one of `servers` is not configured; nothing has been started.
    """
    from mooring.cli.logs import kept_server_logs
    from mooring.host import Host, runtime_of
    from mooring.servers.state import HostOptions
    from mooring.transport.forwarding import ClientBridge

    log_to_stderr(options.verbose)
    with kept_server_logs(), show_warnings("mooring.lock.enforce", out, at_end=True):
        given = HostOptions(
            style=style or ("raw" if one_off is not None else None),
            lock=lock and not options.no_lock and one_off is None,
            on_approval=on_approval,
            on_elicit=on_elicit,
            on_auth=on_auth,
            relay=(relay or ClientBridge()) if declare else None,
        )
        host = Host.from_config(*options.config, **given) if one_off is None else Host([one_off], **given)
        _check(host, out, servers)
        if idle:
            runtime_of(host).current.config = _all_lazy(host.config)
        if prepare is not None:
            await prepare(host)
        async with host:
            yield host


def one_off_server(args: Namespace) -> ServerConfig | None:
    """The server that `--url` or the words after `--` name; None if there is neither.

    Raises:
        UsageError: both are given, or `--header` or `--env` does not fit.
        ConfigError: the URL or a header is not valid.
    """
    from mooring.config.models import ServerConfig

    if args.header and not args.url:
        raise UsageError("--header needs --url.")
    if args.env and not args.program:
        raise UsageError("--env needs a program after `--`.")
    if args.url and args.program:
        raise UsageError("Use either --url or a program after `--`.")
    if args.url:
        headers = dict(pair(word, ":", "--header", "'Name: value'") for word in args.header)
        return ServerConfig(name=_short_name(args.url), url=args.url, headers=headers)
    if args.program:
        command, *rest = args.program
        env = dict(pair(word, "=", "--env", "NAME=value") for word in args.env)
        return ServerConfig(name=_short_name(command, *rest), command=command, args=tuple(rest), env=env)
    return None


def _short_name(*words: str) -> str:
    """A name for a server without one: the host of its URL, or the last word that looks like a package."""
    from urllib.parse import urlsplit

    if "://" in words[0]:
        return urlsplit(words[0]).hostname or "server"
    named = [word for word in words if not word.startswith("-")]
    base = named[1] if len(named) > 1 and named[0].rpartition("/")[2] in ("npx", "uvx", "bunx") else named[0]
    return base.rstrip("/").rpartition("/")[2].partition("@")[0][:64] or "server"


def _check(host: Host, out: Output, servers: Sequence[str]) -> None:
    warnings = [str(warning) for warning in host.config.warnings]
    if warnings and not host.config.servers:
        raise ConfigError("\n".join(warnings))
    for warning in warnings:
        out.warning(warning)
    if not host.config.servers:
        out.note(
            "No servers are configured. Name a file with `--config mcp.json`, "
            "add a server with `mooring add`, or try the bundled ones with `mooring demo`."
        )
    known = [server.name for server in host.config.servers]
    for name in servers:
        if name not in known:
            raise UnknownServer(name, nearest(name, known), hint="See `mooring list`.")


def _all_lazy(config: HostConfig) -> HostConfig:
    lazy = tuple(replace(server, start="lazy") for server in config.servers)
    return replace(config, servers=lazy)


async def watch(
    host: Host,
    out: Output,
    wait: Callable[[], Awaitable[object]],
    *,
    timeout: float | None,
    names: Collection[str] | None = None,
) -> None:
    """Wait at most `timeout` seconds, with progress on a terminal.

    `names`: the servers to show; None: all.
    """
    with anyio.move_on_after(timeout):
        async with anyio.create_task_group() as tasks:
            if out.interactive:
                tasks.start_soon(show_progress, host, out, names)
            await wait()
            tasks.cancel_scope.cancel()


def log_to_stderr(verbose: bool) -> None:
    """Show the log if `verbose`. Otherwise hide it: commands report server errors from the status."""
    import logging

    class Cleaned(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return clean(super().format(record))

    # Without a handler, logging would print warnings itself.
    handler = logging.StreamHandler() if verbose else logging.NullHandler()
    handler.setFormatter(Cleaned("%(levelname).1s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    if verbose:
        logging.getLogger().setLevel(logging.DEBUG)


@contextmanager
def show_warnings(logger: str, out: Output, *, at_end: bool) -> Generator[None]:
    """Show the warnings of one logger on standard error, each text once.

    With `at_end` they are printed after the block, because the progress display redraws its lines until then;
    without a text that is the error of the command.
    """
    import logging

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if text not in texts:
                texts.append(text)
                if not at_end:
                    out.warning(text)

    texts: list[str] = []
    collector = Collector(logging.WARNING)
    source = logging.getLogger(logger)
    if not out.options.verbose:  # otherwise the log is shown anyway
        source.addHandler(collector)
    failure = ""
    try:
        yield
    except Exception as problem:
        failure = str(problem)
        raise
    finally:
        source.removeHandler(collector)
        for text in texts if at_end else ():
            if text not in (failure, out.reported):
                out.warning(text)


T = TypeVar("T")


def chosen(host: Host, names: Sequence[str] = ()) -> tuple[str, ...]:
    """The named servers, or all enabled servers if none is named."""
    return tuple(names) or tuple(s.name for s in host.status() if s.state != "disabled")


async def gather(
    host: Host, out: Output, names: Collection[str], timeout: float | None, *, cached: bool = True
) -> None:
    """Wait for those servers that are not in the lock or the cache, or for all; report the missing ones."""
    for problem in host.held.values():
        out.warning(str(problem))
    known = host.catalog.servers if cached else ()
    waited = [name for name in names if name not in known]
    if waited:
        await watch(host, out, lambda: settle(host, waited), timeout=timeout, names=waited)
    report_missing(host, out, waited)
    report_warnings(host, out)


async def settle(host: Host, names: Collection[str]) -> None:
    """Start lazy servers, then wait until each of these servers has connected or failed."""
    lazy = [server.name for server in host.config.active if server.start == "lazy" and server.name in names]
    events = host.events()
    if lazy:
        await host.refresh(*lazy)
    while any(status.state == "pending" for status in host.status() if status.name in names):
        await anext(events)


async def listed(
    host: Host, out: Output, ask: Callable[..., Awaitable[T]], server: str | None, timeout: float | None
) -> T:
    """Call `ask` for one server or all, with progress. After the timeout, return what is known by then."""
    found: list[T] = []

    async def wait() -> None:
        found.append(await ask(server))

    await watch(host, out, wait, timeout=timeout, names=None if server is None else [server])
    return found[0] if found else await ask(server, timeout=0)


async def find_tool(host: Host, name: str, options: Options, out: Output) -> Tool:
    """Return the tool as soon as its server has listed it; do not wait for servers that cannot have it.

    With a single server, the tool's own name is enough.

    Raises:
        ToolChanged: the lock hides it.
        UnknownTool: there is none of this name.
    """
    from mooring.host import runtime_of

    runtime = runtime_of(host)
    await watch(host, out, lambda: runtime.arrival(name, options.timeout), timeout=options.timeout)
    tools = host.catalog.tools
    if name in tools:
        return tools[name]
    by_own_name = [tool for tool in tools.values() if tool.remote_name == name]
    if len(by_own_name) == 1 and len(host.config.servers) == 1:
        return by_own_name[0]
    if (changed := runtime.withheld(name)) is not None:
        raise changed
    near, absent = nearest(name, tools), runtime.absence(name)
    if absent is not None:
        raise UnknownTool(name, near, hint=absent.hint, server=absent.server, state=absent.state)
    raise UnknownTool(name, near, hint="`mooring tools` lists all tools.")


def report_missing(host: Host, out: Output, names: Collection[str]) -> None:
    """Warn about those of these servers that are not connected."""
    for status in host.status():
        if status.name in names and status.state not in ("connected", "disabled"):
            out.warning(f"Server {status.name!r} is missing: {summary(status)}")


def report_failed(errors: Mapping[str, str], out: Output) -> None:
    """Warn about servers that are missing in the result, with the reason."""
    for name, why in errors.items():
        out.warning(f"Server {name!r} is missing: {one_line(why)}")


def report_warnings(host: Host, out: Output) -> None:
    """Print the warnings about the servers' tools."""
    for warning in _of_servers(host):
        out.warning(": ".join(text for text in (warning["server"], warning["message"]) if text))


def report_suspicious(snapshots: Iterable[Snapshot], out: Output) -> None:
    """Warn about suspicious descriptions of servers that are about to be approved."""
    from mooring.core.injection_scan import injection_warnings

    for snapshot in snapshots:
        for text in injection_warnings(snapshot):
            out.warning(f"{text}; read it before you approve it")


def warnings_of(host: Host) -> list[dict[str, str | None]]:
    """Warnings about the configuration and the servers, in their JSON form."""
    configured = [
        {"file": w.file, "server": w.server, "field": w.field, "message": w.message}
        for w in host.config.warnings
    ]
    return [*configured, *_of_servers(host)]


def _of_servers(host: Host) -> list[dict[str, str | None]]:
    place = {"file": None, "field": None}
    reported = [
        {**place, "server": status.name, "message": text}
        for status in host.status()
        for text in status.warnings
    ]
    merged = [{**place, "server": None, "message": text} for text in host.catalog.warnings]
    return [*reported, *merged]
