"""`mooring login`: log in to a server, in a browser here or anywhere."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from mooring.cli.options import Options, Parser
from mooring.cli.output import Output
from mooring.core.addresses import check_url
from mooring.core.text import clean
from mooring.errors import AuthNeeded, MooringError

if TYPE_CHECKING:
    from mooring.auth.login import Login


def open_in_browser(url: str) -> bool:
    """Whether the page could be opened. It blocks as long as some browsers run: call it from a thread.

    Raises:
        RefusedError: it is no https page (http only on this machine), or holds what does not belong there.
    """
    import webbrowser

    # The standard library starts the browser with the address as one argument; by what was checked, it
    # begins with a scheme and so is never taken for an option.
    check_url(url, "the page", allowed=("loopback", "private"))
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False


USAGE = "mooring login SERVER [--no-browser] [options]"
DETAILS = """

Opens the login page of the server in your browser and waits until you are
done. The login is kept and renewed: later commands use it by themselves.

With --no-browser it prints the address. Open it anywhere; the page that the
browser is sent to at the end may fail to load. Paste its address here.

With --principal the login is that of one client of `mooring serve`, for a
server with `isolation: session`: nobody else's calls use it.

Exit code 3: nobody logged in, or the login cannot be used safely."""
EXAMPLES = """\
  mooring login github
  mooring login github --no-browser"""

_LONGEST = 64 * 1024


def configure(parser: Parser) -> None:
    parser.add_argument("server", metavar="SERVER", help="the server's name in the configuration")
    parser.add_argument("--no-browser", action="store_true", help="print the address instead of opening it")
    parser.add_argument(
        "--principal", metavar="NAME", help="whose login, of those that a gateway serves, such as token:ana"
    )


async def run(args: Namespace, options: Options, out: Output) -> int:
    from mooring.cli.hosting import open_host

    async with open_host(options, out, servers=[args.server], idle=True) as host:
        login = await host.login(args.server, principal=args.principal)
        out.note(f"The login page of {args.server} is on {login.host}.")
        if args.no_browser or not await _opened(login.url):
            sys.stderr.write(f"Open this address in a browser:\n\n{clean(login.url)}\n\n")
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
        from mooring.cli.progress import plural

        out.note(f"Logged in to {args.server}: {plural(status.tools, 'tool')}.")
    return 0


async def _opened(url: str) -> bool:
    from anyio import to_thread

    return await to_thread.run_sync(open_in_browser, url, abandon_on_cancel=True)


async def _done(login: Login, timeout: float | None, out: Output) -> None:
    try:
        await login.done(timeout)
    except TimeoutError:
        text = f"{login.server!r} is not logged in: nobody did so within {timeout:g} s; try again"
        raise AuthNeeded(text, server=login.server, url=login.url) from None
    except AuthNeeded:
        raise
    except MooringError as problem:
        out.warning(f"The login to {login.server} worked and is kept, but: {problem}")


async def _with_paste(login: Login, timeout: float | None, out: Output) -> None:
    """Wait for the browser, and for an address that somebody pastes: whichever comes."""
    import asyncio

    sys.stderr.write("When it is done, paste the address that the browser shows at the end: ")
    sys.stderr.flush()
    paste = asyncio.create_task(_pasted(login, out))
    try:
        await _done(login, timeout, out)
    finally:
        paste.cancel()


async def _pasted(login: Login, out: Output) -> None:
    from anyio import to_thread

    data = b""
    while not login.over and len(data) < _LONGEST:
        line, end, rest = data.partition(b"\n")
        if end:
            data = rest
            await _try(login, line.decode("utf-8", "replace"), out)
            continue
        # Not by way of `sys.stdin`, whose lock would outlive an interrupted wait.
        piece = await to_thread.run_sync(os.read, sys.stdin.fileno(), 4096, abandon_on_cancel=True)
        if not piece:
            return  # nobody is there to paste; the browser may still come back by itself
        data += piece


async def _try(login: Login, line: str, out: Output) -> None:
    try:
        if line.strip():
            await login.complete(line)
    except AuthNeeded as problem:
        if not login.over:
            out.error(str(problem))
