"""`mooring login` and `mooring logout`: tokens of a server, from a browser on this machine or another one."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output, plural
from mooring.core.addresses import check_url
from mooring.core.text import clean
from mooring.errors import AuthNeeded, MooringError

if TYPE_CHECKING:
    from mooring.auth.login import Login


def open_in_browser(url: str) -> bool:
    """Open the page and return whether that worked. Some browsers block: call it from a thread.

    Raises:
        RefusedError: the URL is not https (http only for local addresses), or contains forbidden characters.
    """
    import webbrowser

    # The browser gets the URL as one argument; the check ensures that it starts with a scheme, not with `-`.
    check_url(url, "the page", allowed=("loopback", "private"))
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False


USAGE = "mooring login SERVER [--no-browser] [options]"
DETAILS = """

Opens the login page of the server in your browser and waits for the login. The
tokens are stored and renewed, and later commands use them.

With --no-browser it prints the URL. Open it on any machine; the last page may
fail to load. Copy its URL from the address bar and paste it here.

With --principal the login is for one client of `mooring serve`, on a server
with `isolation: session`. Calls of other clients do not use it.

Exit code 3: the login was not completed, or is not safe to use."""
EXAMPLES = """\
  mooring login github
  mooring login github --no-browser"""

_MAX_INPUT = 64 * 1024


def configure(parser: Parser) -> None:
    parser.add_argument("server", metavar="SERVER", help="name of the server")
    parser.add_argument("--no-browser", action="store_true", help="print the URL instead of opening it")
    parser.add_argument("--principal", metavar="NAME", help="the gateway client, such as token:ana")


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import open_host

    async with open_host(options, out, servers=[args.server], idle=True) as host:
        login = await host.login(args.server, principal=args.principal)
        out.note(f"The login page of {args.server} is at {login.host}.")
        if args.no_browser or not await _opened(login.url):
            from mooring.cli.terminal import has_links, link

            shown = link(login.url, clean(login.url)) if has_links(sys.stderr) else clean(login.url)
            sys.stderr.write(f"Open this URL in a browser:\n\n{shown}\n\n")
            await _with_paste(login, options.timeout, out)
        else:
            await _done(login, options.timeout, out)
        status = next(status for status in host.status() if status.name == args.server)
    if options.json:
        out.document(
            {
                "server": args.server,
                "status": "logged in",
                "issuer": login.issuer,
                "scopes": list(login.scopes),
                "state": status.state,
                "tools": status.tools,
            }
        )
    else:
        out.note(f"Logged in to {args.server}: {plural(status.tools, 'tool')}.")
    return 0


async def _opened(url: str) -> bool:
    from anyio import to_thread

    return await to_thread.run_sync(open_in_browser, url, abandon_on_cancel=True)


async def _done(login: Login, timeout: float | None, out: Output) -> None:
    try:
        await login.done(timeout)
    except TimeoutError:
        text = f"The login to {login.server!r} was not completed within {timeout:g} s (--timeout). Try again."
        raise AuthNeeded(text, server=login.server, url=login.url) from None
    except AuthNeeded:
        raise
    except MooringError as problem:
        out.warning(f"The login to {login.server} succeeded and is stored, but the server failed: {problem}")


async def _with_paste(login: Login, timeout: float | None, out: Output) -> None:
    """Wait for the browser to return, or for a pasted URL."""
    import asyncio

    sys.stderr.write("After the login, paste the URL that the browser shows: ")
    sys.stderr.flush()
    paste = asyncio.create_task(_pasted(login, out))
    try:
        await _done(login, timeout, out)
    finally:
        paste.cancel()


async def _pasted(login: Login, out: Output) -> None:
    from anyio import to_thread

    data = b""
    while not login.over and len(data) < _MAX_INPUT:
        line, end, rest = data.partition(b"\n")
        if end:
            data = rest
            await _try(login, line.decode("utf-8", "replace"), out)
            continue
        # Not `sys.stdin.read`, which would keep its lock after an interrupted wait.
        piece = await to_thread.run_sync(os.read, sys.stdin.fileno(), 4096, abandon_on_cancel=True)
        if not piece:
            return  # end of input; the browser may still complete the login
        data += piece


async def _try(login: Login, line: str, out: Output) -> None:
    try:
        if line.strip():
            await login.complete(line)
    except AuthNeeded as problem:
        if not login.over:
            out.error(str(problem))


class LogoutCommand:
    """The command `mooring logout`."""

    USAGE = "mooring logout SERVER [options]"
    DETAILS = """

Removes the tokens of a server from this machine and revokes them, if the
authorization server supports it."""
    EXAMPLES = """\
  mooring logout github"""

    @staticmethod
    def configure(parser: Parser) -> None:
        parser.add_argument("server", metavar="SERVER", help="name of the server")
        parser.add_argument("--principal", metavar="NAME", help="the gateway client, such as token:ana")

    @staticmethod
    async def run(args: Namespace, options: Options, out: Output) -> int:
        from mooring.cli.hosting import open_host

        async with open_host(options, out, servers=[args.server], idle=True) as host:
            revoked = await host.logout(args.server, principal=args.principal)
        if options.json:
            out.document({"server": args.server, "status": "logged out", "revoked": revoked})
            return 0
        out.note(f"Logged out of {args.server}.")
        if revoked is False:
            out.warning(
                "The tokens were removed from this machine, but could not be revoked. If others may have "
                "seen them, end the access in your account at the server."
            )
        return 0
