"""Credentials for one HTTP server: its token, refreshed in time, and new logins."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from anyio import to_thread

from mooring.auth.metadata import Challenge, read_challenge
from mooring.auth.token_store import Grant, TokenStore, UnsafeStoreError
from mooring.config.models import ServerConfig, Target
from mooring.config.network import AuthConfig
from mooring.core.addresses import RefusedAddressError
from mooring.errors import AuthNeeded
from mooring.transport.message import WireError
from mooring.transport.pool import HttpRoute

if TYPE_CHECKING:
    from mooring.auth.flow import Found
    from mooring.auth.guarded_http import GuardedHttp
    from mooring.auth.login import Login

PROBE = 2.0
"""Seconds to wait for the metadata of a server that requires a login."""

LAST_WORDS = 3.0
"""Seconds that a running token refresh may take when the host is closed."""


class Credentials:
    """The credentials for one server. Requests with a valid token do not wait for each other."""

    def __init__(
        self,
        server: str,
        url: str,
        auth: AuthConfig,
        way: HttpRoute,
        *,
        on_wanted: Callable[[str], None],
        principal: str | None = None,
    ) -> None:
        self.server = server
        self.url = url
        self.auth = auth
        self.way = way
        self.principal = principal
        """Principal of the login; None for the user who runs the host."""
        self.hopeless = False
        """Whether the server denies access and a login in a browser cannot change that."""
        self.wanted: str | None = None
        """The reason to log in; None when a login is not needed."""
        self.challenge: Challenge | None = None
        self.store = TokenStore(url, auth.client_id, principal)
        self.grant: Grant | None = None
        self._on_wanted = on_wanted
        self._loaded = False
        self._renewal: asyncio.Task[bool] | None = None
        self._beginning = asyncio.Lock()
        self._pending: Login | None = None

    def look_again(self) -> None:
        """Read the store again if another process has logged in since."""
        self._loaded = self._loaded and not self.news()

    def news(self) -> bool:
        """Whether another process has stored a login since the last read."""
        return self._loaded and self.store.changed()

    def visit(self) -> GuardedHttp:
        from mooring.auth.guarded_http import GuardedHttp

        return GuardedHttp(self.url, self.way)

    def secrets(self) -> tuple[str, ...]:
        """Secrets to redact, longest first."""
        known = {self.auth.client_secret}
        if self.grant is not None:
            tokens = self.grant.tokens
            known |= {tokens.access, tokens.refresh, self.grant.client.client_secret}
        return tuple(sorted((text for text in known if text), key=len, reverse=True))

    # --- for requests ---------------------------------------------------------------------------

    async def bearer(self) -> str | None:
        """Return the token to send, refreshed if it is about to expire; None when there is none.

        Raises:
            WireError: It has expired and cannot be refreshed now.
        """
        if not self._loaded:
            await self._load()
        if self.grant is None:
            return None
        tokens, now = self.grant.tokens, time.time()
        if now < tokens.renew_at or (now < tokens.expires_at and self._renewal is not None):
            return tokens.access
        if not self._renewable():
            return tokens.access  # the server's 401 decides
        try:
            await self._renew(tokens.access)
        except WireError:
            if now >= tokens.expires_at:
                raise
        return self._token()

    def _token(self) -> str | None:
        return self.grant.tokens.access if self.grant is not None else None

    async def another(self, status: int, header: str | None, sent: str | None) -> bool:
        """Whether to send a request with this response again, because there is another token.

        Raises:
            WireError: There is no other token now.
        """
        if status not in (401, 403):
            return False
        challenge = read_challenge(header)
        if status == 403:
            if challenge is None or not challenge.wants_more:
                return False
            return await self._more(challenge)
        self.challenge = challenge or self.challenge
        return await self._renew(sent)

    async def _more(self, challenge: Challenge) -> bool:
        """The login is valid, but needs more scopes: by a user, or by a new grant."""
        held = set(self.grant.tokens.scopes if self.grant else ())
        if not set(challenge.scopes) - held:
            return False  # it already has these scopes: another request would repeat for ever
        self.challenge = challenge
        if self.auth.type == "client_credentials":
            return await self._renew(self._token())
        scopes = ", ".join(map(repr, challenge.scopes))
        self.wanted = f"it wants more rights than the login has: {scopes} (HTTP 403)"
        self._on_wanted(self.wanted)
        return False

    # --- renewal --------------------------------------------------------------------------------

    async def _load(self) -> None:
        try:
            self.grant = await to_thread.run_sync(self.store.load)
        except UnsafeStoreError as problem:
            text = f"its kept login is not safe: {problem}"
            raise WireError(text, kind="status", outcome="not sent") from None
        if self.grant is not None and self.auth.issuer not in (None, self.grant.issuer):
            self.grant = None
        self._loaded = True

    def _renewable(self) -> bool:
        refresh = self.grant.tokens.refresh if self.grant else None
        return refresh is not None or self.auth.type == "client_credentials"

    async def _renew(self, stale: str | None) -> bool:
        """Whether there is a token other than `stale` now. Concurrent callers share one request; a cancelled
        caller does not cancel it."""
        if self._renewal is None:
            if self.grant is not None and self.grant.tokens.access != stale:
                return True
            if not self._renewable():
                return False
            self._renewal = asyncio.create_task(self._renew_once(stale))
            self._renewal.add_done_callback(self._renewed)
        return await asyncio.shield(self._renewal)

    def _renewed(self, task: asyncio.Task[bool]) -> None:
        self._renewal = None
        if not task.cancelled():
            task.exception()  # retrieved even if no caller waits any more

    async def _renew_once(self, stale: str | None) -> bool:
        from mooring.auth.guarded_http import UnreachableError

        try:
            async with self.store.locked():
                if self.store.place != "memory":
                    await self._load()
                grant = self.grant
                if grant is not None and grant.tokens.access != stale and time.time() < grant.tokens.renew_at:
                    return True  # another process was quicker
                new = await self._new_grant(grant)
                if new is not None:
                    self.keep(new)
                    await to_thread.run_sync(self.store.save, new)
                return new is not None
        except UnreachableError as problem:
            text = f"its login cannot be renewed now: {problem}"
            raise WireError(text, kind="refused", outcome="not sent") from None
        except RefusedAddressError as problem:
            self.wanted = str(problem)
            return False

    async def _new_grant(self, grant: Grant | None) -> Grant | None:
        from mooring.auth.flow import DeniedError, by_credentials, refreshed

        async with self.visit() as visit:
            if self.auth.type == "client_credentials":
                found = await self.found(visit)
                new = await by_credentials(visit, self.auth, found, self.scopes(found))
                self.satisfied()
                return new
            if grant is None or grant.tokens.refresh is None:
                return None
            try:
                return await refreshed(visit, grant)
            except DeniedError as denied:
                if denied.error in ("invalid_grant", "invalid_client"):
                    await self.forget()  # it cannot be refreshed any more
                raise

    async def found(self, visit: GuardedHttp) -> Found:
        """Return the authorization server, compared with that of the last login.

        Raises:
            NoOAuthError, RefusedError, UnreachableError: There is none that can be used.
        """
        from mooring.auth.flow import discover

        if not self._loaded:
            await self._load()
        hint = self.grant.resource_metadata if self.grant is not None else None
        found = await discover(visit, self.auth, self.challenge, hint)
        bound = self.auth.client_secret is not None and self.auth.issuer is None and self.grant is not None
        if bound and self.grant is not None and self.grant.issuer != found.server.issuer:
            raise RefusedAddressError(
                f"its client was used with {self.grant.issuer!r} and it now names {found.server.issuer!r}; "
                "if that is right, say so with `issuer` in `auth`"
            )
        return found

    def scopes(self, found: Found) -> tuple[str, ...]:
        """Return the scopes to request: those configured or offered, and those required since."""
        asked = self.challenge.scopes if self.challenge else ()
        more = self.challenge is not None and self.challenge.wants_more
        held = self.grant.tokens.scopes if self.grant is not None and more else ()
        base = self.auth.scopes or (() if asked else found.protected.scopes)
        return tuple(dict.fromkeys((*base, *held, *asked)))

    # --- logins ---------------------------------------------------------------------------------

    def keep(self, grant: Grant) -> None:
        """Use this login from now on."""
        self.grant, self._loaded = grant, True

    def satisfied(self) -> None:
        """Clear the reasons to log in."""
        self.wanted = self.challenge = None
        self.hopeless = False

    def accepted(self) -> None:
        """The server accepted a request; scopes that are still missing stay required."""
        self.hopeless = False
        if self.challenge is None or not self.challenge.wants_more:
            self.wanted = None

    async def forget(self) -> None:
        self.grant = None
        await to_thread.run_sync(self.store.delete)

    async def explain(self, problem: str) -> AuthNeeded:
        """Return why the server denies access, and what to do; `wanted` says whether a login would help."""
        from mooring.auth.flow import NoOAuthError
        from mooring.auth.guarded_http import UnreachableError

        said, self.wanted = self.wanted, None
        whose = "" if self.principal is None else f" --principal {shlex.quote(self.principal)}"
        how = f"log in: `mooring login {self.server}{whose}`"
        try:
            async with asyncio.timeout(PROBE), self.visit() as visit:
                await self.found(visit)
        except NoOAuthError:
            how = "it offers no OAuth login: give it a token in `headers`"
            said = None
        except RefusedAddressError as refused:
            how = f"its OAuth login cannot be used: {refused}"
        except (UnreachableError, TimeoutError, WireError) as fault:
            how = f"{how} (where to is not known yet: {fault or 'no answer in time'})"
            self.wanted = problem
        else:
            self.wanted = problem
        if self.auth.type == "client_credentials":
            how, said, self.wanted = said or "its client credentials are refused", None, None
        self.hopeless = self.wanted is None
        middle = f" ({said})" if said and said != problem and self.wanted else ""
        return AuthNeeded(f"{self.server!r}: {problem}{middle}; {how}", server=self.server)

    async def begin(self) -> Login:
        """Return the pending login, or a new one.

        Raises:
            AuthNeeded: There can be none.
        """
        from mooring.auth.login import begin

        async with self._beginning:
            old, wanted = self._pending, self.challenge.scopes if self.challenge else ()
            if old is not None and not old.over and set(wanted) <= set(old.scopes):
                return old
            if old is not None:
                await old.close()
            self._pending = await begin(self)
            return self._pending

    async def logout(self) -> bool | None:
        """Remove the login and revoke it. Return whether that succeeded; None if it is not supported
        or there was no login."""
        from mooring.auth.flow import revoke
        from mooring.auth.guarded_http import UnreachableError

        async with self.store.locked():
            try:
                await self._load()
            except WireError:
                self.grant = None
            grant = self.grant
            await self.forget()
        if grant is None:
            return None
        try:
            async with self.visit() as visit:
                return await revoke(visit, grant)
        except (RefusedAddressError, UnreachableError):
            return False

    async def close(self) -> None:
        if self._renewal is not None:
            await asyncio.wait({self._renewal}, timeout=LAST_WORDS)
        if self._pending is not None:
            await self._pending.close()


def access_for(
    config: ServerConfig,
    target: Target,
    way: HttpRoute,
    old: Credentials | None,
    on_wanted: Callable[[str], None],
    principal: str | None = None,
) -> Credentials | None:
    """Return the credentials of an HTTP server without an Authorization header; None for others.
    `on_wanted` is called when the server requires more scopes than the login has. Client credentials are the
    configuration's own for every caller: a principal has none of those."""
    auth = AuthConfig(**target.auth)
    if target.url is None or auth.type == "none" or any(n.lower() == "authorization" for n in target.headers):
        return None
    if old is not None and (old.url, old.auth) == (target.url, auth):
        old.way = way
        old.look_again()
        return old
    whose = None if auth.type == "client_credentials" else principal
    return Credentials(config.name, target.url, auth, way, on_wanted=on_wanted, principal=whose)
