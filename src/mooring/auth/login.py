"""One login of a user: the URL to open, and the page on this machine that receives the redirect."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from aiohttp import web

from mooring.auth.flow import (
    Found,
    OtherLoginError,
    authorization_url,
    check_fit,
    client_for,
    read_callback,
    tokens_for,
)
from mooring.auth.guarded_http import UnreachableError
from mooring.concurrency import call_back
from mooring.config.logs import logger
from mooring.core.addresses import RefusedAddressError, check_url
from mooring.errors import AuthNeeded, raise_alone
from mooring.transport.message import WireError

if TYPE_CHECKING:
    from mooring.auth.credentials import Credentials
    from mooring.auth.token_store import OAuthClient

log = logger("mooring.login")

LIFE = 300.0
"""Seconds that a login waits for the user."""
PATH = "/callback"
_SHUTDOWN_GRACE = 1.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>mooring</title>'
    '<body style="font: 1.2em system-ui, sans-serif; margin: 4em auto; max-width: 32em">'
    "<h1>mooring</h1><p>{text}</p></body></html>"
)
_DONE = "Login complete. You can close this window and return to your application."
_FAILED = "Login failed. Return to your application for details."
_OTHER = "This page does not belong to a login in progress."

OnAuth = Callable[["Login"], Awaitable[None] | None]
"""Shows a login to the user. It may wait for `done()`, and may `complete()` or `cancel()` it. A plain
function runs in a thread, a coroutine function on the event loop."""


class Answered(Protocol):
    async def __call__(self, callback_url: str) -> None: ...


class Redirect:
    """A redirect address that the application serves itself: it passes the URL of the redirect to
    `complete()`."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.answered: Answered | None = None

    async def close(self) -> None: ...


class Callback:
    """A page on 127.0.0.1 that receives the redirect of the browser."""

    def __init__(self, server: asyncio.Server, pages: web.Server) -> None:
        self._server, self._pages = server, pages
        self.origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.uri = self.origin + PATH
        self.answered: Answered | None = None

    @classmethod
    async def open(cls, port: int | None) -> Callback:
        """Listen, on a port of the system's choice if none is given.

        Raises:
            OSError: the port is taken.
        """
        made: list[Callback] = []
        # No access log: the URL of the redirect contains the code.
        pages = web.Server(lambda request: made[0]._page(request), access_log=None, keepalive_timeout=0.0)
        server = await asyncio.get_running_loop().create_server(pages, "127.0.0.1", port or 0)
        made.append(cls(server, pages))
        return made[0]

    async def close(self) -> None:
        self._server.close()
        await self._pages.shutdown(_SHUTDOWN_GRACE)

    async def _page(self, request: web.BaseRequest) -> web.StreamResponse:
        hosts = request.headers.getall("Host", [])
        # An attacker may have pointed another name at this machine (DNS rebinding).
        if hosts != [urlsplit(self.origin).netloc] or self.answered is None:
            return _shown(400, _OTHER)
        if request.method != "GET" or request.raw_path.partition("?")[0] != PATH:
            return _shown(404, _OTHER)
        try:
            await self.answered(self.origin + request.raw_path)
        except OtherLoginError:
            return _shown(400, _OTHER)
        except AuthNeeded:
            return _shown(400, _FAILED)
        return _shown(200, _DONE)


def _shown(status: int, text: str) -> web.Response:
    page = _PAGE.format(text=text)  # our own text only: nothing of the request is repeated
    return web.Response(status=status, text=page, content_type="text/html", headers=_HEADERS)


class Login:
    """A login that waits for the user. Show `host` and `url`; `done()` returns when it has succeeded.

    The browser is redirected to this machine. If it runs on another one, pass the address that it was
    redirected to (it begins with http://127.0.0.1) to `complete()`.
    """

    def __init__(
        self, access: Credentials, found: Found, client: OAuthClient, callback: Callback | Redirect
    ) -> None:
        self.server = access.server
        self.scopes = access.scopes(found)
        """The requested scopes; empty: the default of the authorization server."""
        self._access, self._found, self._client, self._callback = access, found, client, callback
        self.remote = isinstance(callback, Redirect)
        """Whether the application serves the redirect address."""
        self.state, self._verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
        """Identifies the login in the URL of the redirect."""
        self._redirect_uri = callback.uri
        self.url = authorization_url(
            found.server,
            client_id=client.client_id,
            redirect_uri=self._redirect_uri,
            resource=found.protected.resource,
            scopes=self.scopes,
            state=self.state,
            verifier=self._verifier,
        )
        """The URL to open in a browser."""
        self.host = urlsplit(self.url).netloc
        """The host of that page: show it, so that the user can recognise an unexpected one."""
        self.issuer = found.server.issuer
        self.on_success: Callable[[], None] = _nothing
        self.settle: Callable[[], Awaitable[None]] = _settled
        """Waits until the server has been connected with the new login."""
        self._spent = False
        self._outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outcome.add_done_callback(_seen)
        self._closing: asyncio.Task[None] | None = None
        text = f"no login within {LIFE / 60:g} minutes"
        self._timer = asyncio.get_running_loop().call_later(LIFE, self._end, text)
        callback.answered = self._answer

    def __repr__(self) -> str:
        return f"Login(server={self.server!r}, host={self.host!r}, over={self.over})"

    @property
    def over(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._outcome.done()

    async def complete(self, callback_url: str) -> None:
        """Finish with the URL to which the browser was redirected.

        Raises:
            AuthNeeded: The URL belongs to another login (this one keeps waiting), or the login failed.
        """
        try:
            await self._answer(callback_url.strip())
        except OtherLoginError as problem:
            raise_alone(self._needed(f"{problem}; paste the whole address that the browser shows"))

    async def done(self, timeout: float | None = None) -> None:
        """Wait until the login has succeeded and the server is connected with it.

        Raises:
            AuthNeeded: It failed, was cancelled, or timed out.
            TimeoutError: It is still pending.
            MooringError: It succeeded, but the server cannot be used for another reason.
        """
        async with asyncio.timeout(timeout):
            await asyncio.shield(self._outcome)
            await self.settle()

    async def cancel(self) -> None:
        """Cancel the login."""
        self._end("the login was cancelled")
        await self.close()

    async def close(self) -> None:
        """Cancel the login if it is pending, and free the port."""
        self._end("the login was abandoned")
        if self._closing is not None:
            await self._closing

    async def _answer(self, callback_url: str) -> None:
        if self._spent or self.over:
            raise OtherLoginError("this login was answered already")
        try:
            server = self._found.server
            code = read_callback(
                callback_url, redirect_uri=self._redirect_uri, state=self.state, server=server
            )
            self._spent = True
            await self._exchange(code)
        except OtherLoginError:
            raise
        except (RefusedAddressError, UnreachableError) as problem:
            self._end(str(problem))
            raise_alone(self._needed(str(problem)))
        self._end(None)

    async def _exchange(self, code: str) -> None:
        from anyio import to_thread

        access, found = self._access, self._found
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": self._verifier,
            "resource": found.protected.resource,
        }
        async with access.http() as http:
            endpoint = found.server.token_endpoint
            tokens = await tokens_for(http, endpoint, self._client, form, asked=self.scopes)
        grant = found.grant(self._client, tokens)
        access.keep(grant)
        access.satisfied()
        async with access.store.locked():
            await to_thread.run_sync(access.store.save, grant)

    def _end(self, problem: str | None) -> None:
        if self.over:
            return
        self._timer.cancel()
        if problem is None:
            self._outcome.set_result(None)
            self.on_success()
        else:
            self._outcome.set_exception(self._needed(problem))
        self._closing = asyncio.get_running_loop().create_task(self._callback.close())

    def _needed(self, problem: str) -> AuthNeeded:
        text = self._access.redact(f"{self.server!r} is not logged in: {problem}")
        return AuthNeeded(text, server=self.server)


async def begin(access: Credentials, redirect_uri: str | None = None) -> Login:
    """Return a login that waits for the user. The port is bound before the URL exists.

    Raises:
        AuthNeeded: A login is not possible.
    """
    if access.auth.unattended:
        problem = "its tokens are requested without one; correct its `auth` if they are refused"
        text = f"{access.server!r} has no login in a browser: {problem}"
        raise AuthNeeded(text, server=access.server, login=False)
    try:
        callback = Redirect(redirect_uri) if redirect_uri else await Callback.open(access.auth.callback_port)
    except OSError as problem:
        text = f"{access.server!r}: no port on 127.0.0.1 is free for the login: {problem.strerror}"
        raise_alone(AuthNeeded(text, server=access.server))
    try:
        async with access.http() as http:
            found = await access.found(http)
            check_fit(found.server)  # before mooring registers itself there
            scopes = access.scopes(found)
            client = await client_for(http, access.auth, found.server, callback.uri, scopes)
            login = Login(access, found, client, callback)
            check_url(login.url, "its login page", http.allowed)
            return login
    except BaseException as problem:
        await callback.close()
        if isinstance(problem, RefusedAddressError | UnreachableError | WireError):
            text = access.redact(f"{access.server!r} cannot be logged in to: {problem}")
            raise_alone(AuthNeeded(text, server=access.server))
        raise


async def authenticate(login: Login, on_auth: OnAuth | None, timeout: float | None) -> str:
    """Return the result of the tool `authenticate` after the login.

    Raises:
        AuthNeeded: The user must open a URL first and no `on_auth` is set, or the login failed.
    """
    if on_auth is None:
        raise AuthNeeded(
            f"{login.server!r} requires a login at {login.host}. Ask for this address to be opened "
            f"in a browser on this machine, within {LIFE / 60:g} minutes: {login.url}\n"
            "When that is done, the tools of the server appear by themselves.",
            server=login.server,
            url=login.url,
        )
    try:
        async with asyncio.timeout(LIFE if timeout is None else timeout):
            await _show(login, on_auth)
            await login.done()
    except TimeoutError:
        text = f"{login.server!r} is not logged in yet: the login was not completed in time and is still open"
        raise_alone(AuthNeeded(text, server=login.server, url=login.url))
    return f"Logged in to {login.server!r}. Its tools are available now."


async def _show(login: Login, on_auth: OnAuth) -> None:
    try:
        await call_back(on_auth, login)
    except Exception:
        await login.cancel()
        log.exception("on_auth failed for %s", login.server)
        text = f"{login.server!r} is not logged in: the application could not show the login"
        raise_alone(AuthNeeded(text, server=login.server))


def _nothing() -> None:
    pass


async def _settled() -> None:
    pass


def _seen(outcome: asyncio.Future[None]) -> None:
    """Retrieve the exception of a login that no caller awaits any more."""
    if not outcome.cancelled():
        outcome.exception()


class SyncLogin:
    """`Login` without `await`."""

    def __init__(self, login: Login, do: Any) -> None:
        self.server, self.url, self.host, self.scopes = login.server, login.url, login.host, login.scopes
        self.issuer, self.state, self.remote = login.issuer, login.state, login.remote
        self._login = login
        self._do = do

    @property
    def over(self) -> bool:
        """Whether the login has ended, successfully or not."""
        return self._login.over

    def complete(self, callback_url: str) -> None:
        """See `Login.complete`."""
        self._do(self._login.complete(callback_url))

    def done(self, timeout: float | None = None) -> None:
        """Wait until the login has ended; see `Login.done`."""
        self._do(self._login.done(timeout))

    def cancel(self) -> None:
        """See `Login.cancel`."""
        self._do(self._login.cancel())

    def close(self) -> None:
        """See `Login.close`."""
        self._do(self._login.close())
