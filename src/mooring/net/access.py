"""How one HTTP server is let know who asks: its token, renewed in time, and the way to a new login."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from mooring.core.authconfig import AuthConfig
from mooring.core.config import ServerConfig, Target
from mooring.core.egress import RefusedError
from mooring.core.grants import Grant, known_client
from mooring.core.oauth import Challenge, read_challenge
from mooring.errors import AuthNeeded
from mooring.net.message import WireError
from mooring.net.tokens import TokenStore, UnsafeStoreError

if TYPE_CHECKING:
    from mooring.net.egress import Visit
    from mooring.net.login import Login
    from mooring.net.oauth import Found

PROBE = 2.0
"""Seconds in which a server that wants a login may tell where to get one; after that it is left open."""


class Access:
    """The credentials for one server. Requests that hold a good token never wait for each other here."""

    def __init__(self, server: str, url: str, auth: AuthConfig, *, resolver: Any = None) -> None:
        self.server = server
        self.url = url
        self.auth = auth
        self.wanted: str | None = None
        """Why a login would help now; None when it would not."""
        self.challenge: Challenge | None = None
        self.store = TokenStore(url, auth.client_id)
        self.grant: Grant | None = None
        self.on_wanted: Callable[[str], None] = _ignore
        """Told when a connected server wants more rights than the login has."""
        self._resolver = resolver
        self._loaded = False
        self._renewing = asyncio.Lock()
        self._pending: Login | None = None

    def look_again(self) -> None:
        """Somebody may have logged in in another process since."""
        self._loaded = self._loaded and not self.news()

    def news(self) -> bool:
        """Whether a login was kept by somebody else since we looked."""
        return self._loaded and self.store.changed()

    def visit(self) -> Visit:
        from mooring.net.egress import Visit

        return Visit(self.url, resolver=self._resolver)

    def secrets(self) -> tuple[str, ...]:
        """What must not be shown, longest first."""
        if self.grant is None:
            return ()
        tokens, client = self.grant.tokens, self.grant.client
        known = (tokens.access, tokens.refresh, client.client_secret, self.auth.client_secret)
        return tuple(sorted({text for text in known if text}, key=len, reverse=True))

    # --- for requests ---------------------------------------------------------------------------

    async def bearer(self) -> str | None:
        """The token to send now, renewed if it is about to run out; None when there is none.

        Raises:
            WireError: it has run out and cannot be renewed at the moment.
        """
        if not self._loaded:
            await self._load()
        if self.grant is None:
            return None
        tokens, now = self.grant.tokens, time.time()
        if now < tokens.renew_at or (now < tokens.expires_at and self._renewing.locked()):
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
        """Whether a request that was answered so is worth sending once more, because there is another token.

        Raises:
            WireError: a new one cannot be had at the moment.
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
        """The login is good and its rights are too few: a person, or a new grant, can widen them."""
        held = set(self.grant.tokens.scopes if self.grant else ())
        if not set(challenge.scopes) - held:
            return False  # it has what is asked for: asking again would never end
        self.challenge = challenge
        if self.auth.type == "client_credentials":
            return await self._renew(self._token())
        scopes = ", ".join(map(repr, challenge.scopes))
        self.wanted = f"it wants more rights than the login has: {scopes} (HTTP 403)"
        self.on_wanted(self.wanted)
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
        """Whether there is a token other than `stale` now. However many ask, in however many processes, one
        request is made."""
        from mooring.net.egress import UnreachableError

        async with self._renewing:
            if self.grant is not None and self.grant.tokens.access != stale:
                return True
            if not self._renewable():
                return False
            try:
                async with self.store.locked():
                    return await self._renew_alone(stale)
            except UnreachableError as problem:
                raise WireError(
                    f"its login cannot be renewed now: {problem}", kind="refused", outcome="not sent"
                ) from None
            except RefusedError as problem:
                self.wanted = str(problem)
                return False

    async def _renew_alone(self, stale: str | None) -> bool:
        from mooring.net.oauth import DeniedError, tokens_for

        if self.store.place != "memory":
            await self._load()
        grant = self.grant
        if grant is not None and grant.tokens.access != stale and time.time() < grant.tokens.renew_at:
            return True  # another process was quicker
        async with self.visit() as visit:
            if self.auth.type == "client_credentials":
                new = await self._credentials(visit)
                self.satisfied()
            elif grant is not None and grant.tokens.refresh is not None:
                form = {"grant_type": "refresh_token", "refresh_token": grant.tokens.refresh}
                form["resource"] = grant.resource
                try:
                    tokens = await tokens_for(
                        visit, grant.token_endpoint, grant.client, form, old=grant.tokens
                    )
                except DeniedError as denied:
                    if denied.error in ("invalid_grant", "invalid_client"):
                        await self.forget()  # it will never be good again
                    raise
                new = replace(grant, tokens=tokens)
            else:
                return False
        self.keep(new)
        await to_thread.run_sync(self.store.save, new)
        return True

    async def _credentials(self, visit: Visit) -> Grant:
        """A grant that needs nobody: the client speaks for itself."""
        from mooring.net.oauth import tokens_for

        found = await self.found(visit)
        scopes = self.scopes(found)
        client = known_client(self.auth.client_id or "", self.auth.client_secret, found.server)
        form = {"grant_type": "client_credentials", "resource": found.protected.resource}
        if scopes:
            form["scope"] = " ".join(scopes)
        tokens = await tokens_for(visit, found.server.token_endpoint, client, form, asked=scopes)
        return Grant(
            issuer=found.server.issuer,
            resource=found.protected.resource,
            client=client,
            tokens=tokens,
            token_endpoint=found.server.token_endpoint,
            revocation_endpoint=found.server.revocation_endpoint,
            resource_metadata=found.resource_metadata,
        )

    async def found(self, visit: Visit) -> Found:
        """Where one logs in, checked against where one logged in before.

        Raises:
            NoOAuthError, RefusedError, UnreachableError: nowhere, and why.
        """
        from mooring.net.oauth import discover

        if not self._loaded:
            await self._load()
        hint = self.grant.resource_metadata if self.grant is not None else None
        found = await discover(visit, self.auth, self.challenge, hint)
        bound = self.auth.client_secret is not None and self.auth.issuer is None and self.grant is not None
        if bound and self.grant is not None and self.grant.issuer != found.server.issuer:
            raise RefusedError(
                f"its client was used with {self.grant.issuer!r} and it now names {found.server.issuer!r}; "
                "if that is right, say so with `issuer` in `auth`"
            )
        return found

    def scopes(self, found: Found) -> tuple[str, ...]:
        """What to ask for: what was configured or is offered, and whatever was asked of us since."""
        asked = self.challenge.scopes if self.challenge else ()
        more = self.challenge is not None and self.challenge.wants_more
        held = self.grant.tokens.scopes if self.grant is not None and more else ()
        base = self.auth.scopes or (() if asked else found.protected.scopes)
        return tuple(dict.fromkeys((*base, *held, *asked)))

    # --- logins ---------------------------------------------------------------------------------

    def keep(self, grant: Grant) -> None:
        """This is the login from now on."""
        self.grant, self._loaded = grant, True

    def satisfied(self) -> None:
        """Whatever was wanted was given."""
        self.wanted = self.challenge = None

    def accepted(self) -> None:
        """The server has let us in; what more it wants stays wanted."""
        if self.challenge is None or not self.challenge.wants_more:
            self.wanted = None

    async def forget(self) -> None:
        self.grant = None
        await to_thread.run_sync(self.store.delete)

    async def explain(self, problem: WireError) -> AuthNeeded:
        """Why the server does not let us in, and what to do; `wanted` tells whether a login would help."""
        from mooring.net.egress import UnreachableError
        from mooring.net.oauth import NoOAuthError

        said, self.wanted = self.wanted, None
        how = f"log in: `mooring login {self.server}`"
        try:
            async with asyncio.timeout(PROBE), self.visit() as visit:
                await self.found(visit)
        except NoOAuthError:
            how = "it offers no OAuth login: give it a token in `headers`"
            said = None
        except RefusedError as refused:
            how = f"its OAuth login cannot be used: {refused}"
        except (UnreachableError, TimeoutError, WireError) as fault:
            how = f"{how} (where to is not known yet: {fault or 'no answer in time'})"
            self.wanted = str(problem)
        else:
            self.wanted = str(problem)
        if self.auth.type == "client_credentials":
            how, said, self.wanted = said or "its client credentials are refused", None, None
        middle = f" ({said})" if said and self.wanted else ""
        return AuthNeeded(f"{self.server!r}: {problem}{middle}; {how}", server=self.server)

    async def begin(self) -> Login:
        """The login under way, or a new one.

        Raises:
            AuthNeeded: none can be had, and why.
        """
        from mooring.net.login import begin

        if self._pending is None or self._pending.over:
            self._pending = await begin(self)
        return self._pending

    async def logout(self) -> bool | None:
        """Forget the login, here and at the authorization server: whether that one did; None where it cannot
        or where there was none."""
        from mooring.net.egress import UnreachableError
        from mooring.net.oauth import revoke

        async with self._renewing, self.store.locked():
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
        except (RefusedError, UnreachableError):
            return False

    async def close(self) -> None:
        if self._pending is not None:
            await self._pending.close()


def access_for(config: ServerConfig, target: Target, old: Access | None) -> Access | None:
    """The access of a server that may want a login: one over HTTP, without credentials in its headers."""
    auth = AuthConfig(**target.auth)
    if target.url is None or auth.type == "none" or any(n.lower() == "authorization" for n in target.headers):
        return None
    if old is not None and (old.url, old.auth) == (target.url, auth):
        old.look_again()
        return old
    return Access(config.name, target.url, auth)


def _ignore(reason: str) -> None:
    pass
