"""Logins of gateway clients at servers, from the browser of each client's user.

A client whose call needs a login gets a link: a ticket that is bound to its principal and to one server, is
valid for up to ten minutes and is used once. `login_pages.py` serves the link.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from mooring.config.logs import logger
from mooring.config.sections import GatewaySettings
from mooring.core.addresses import host_realm
from mooring.core.elicitation import URL_REQUIRED
from mooring.errors import AuthNeeded, ConfigError
from mooring.gateway.clients import ANONYMOUS, Client, ClientExchange, Principal
from mooring.gateway.protocol import Refusal, fields, notice_body, shaped
from mooring.host import Host

if TYPE_CHECKING:
    from mooring.auth.login import Login

log = logger("mooring.gateway")

TICKET_LIFE = 600.0
"""Seconds for which a link is valid. One that was given before is given again in its first half."""
MAX_TICKETS = 10_000
WAIT = 240.0
"""Longest time in seconds that a call waits for the login of its user."""
PATH, CALLBACK = "/login/", "/login/callback/"
KEY = "login"
"""Key of the request in `inputRequests`."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One link: who may log in where, and how far that is."""

    key: str
    principal: str
    server: str
    expires: float
    proofs: int = 0
    """Wrong tokens that were entered on its page."""
    browser: bytes | None = None
    """Digest of the cookie of the browser that uses it; None while unused."""
    login: Login | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    done: bool = False
    """Whether the login is complete."""
    listeners: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """Called when the login is complete."""

    @property
    def valid(self) -> bool:
        return time.monotonic() < self.expires and not self.ended.is_set()

    def end(self, *, done: bool) -> None:
        self.done = done
        self.ended.set()
        if done:
            for listener in self.listeners:
                listener()
        self.listeners.clear()


class RemoteLogins:
    """The links of all clients. Off unless the gateway has a public address and a key for stored logins."""

    def __init__(self, host: Host, new_key: Callable[[], str]) -> None:
        self._host, self._new_key = host, new_key
        self.url: str | None = None
        """Public address of the gateway; None while remote logins are off."""
        self.identify: Callable[[str], Awaitable[Principal | None]] | None = None
        """Returns the principal of a token."""
        self._tickets: dict[str, Ticket] = {}
        self._states: dict[str, Ticket] = {}
        """Tickets whose login has begun, by its state."""

    def configure(
        self, settings: GatewaySettings, identify: Callable[[str], Awaitable[Principal | None]]
    ) -> None:
        """Apply settings."""
        public = public_url(settings)
        self.url = None if public is None or not settings.key else public.rstrip("/")
        if settings.public_url is not None and not settings.key:
            log.warning("logins from browsers are off: gateway.public_url is set, and gateway.key is not")
        self.identify = identify

    # --- for requests ---------------------------------------------------------------------------

    def serves(self, client: Client, server: str) -> bool:
        """Whether this client can have a login of its own at the server."""
        if self.url is None or client.principal == ANONYMOUS or not client.profile.admits(server):
            return False
        config = next((one for one in self._host.config.servers if one.name == server), None)
        if config is None or config.url is None or config.isolation != "session":
            return False
        return not any(name.lower() == "authorization" for name in config.headers)

    def helps(self, client: Client, error: AuthNeeded) -> bool:
        """Whether a login of the client's user may remove this error."""
        return error.login and self.serves(client, error.server)

    async def offer(
        self, client: Client, exchange: ClientExchange, server: str, seal: Callable[[str], str]
    ) -> dict[str, Any] | None:
        """Ask the client to have its user log in, in the way that it supports.

        Args:
            client: The client.
            exchange: The channel of its request.
            server: Where the login is needed.
            seal: Makes a request state of a ticket's key.

        Returns:
            The result of the request; None if the login was completed while it waited.

        Raises:
            Refusal: The response is an error that holds the link.
        """
        ticket = self.ticket(client.principal.name, server)
        asked = self._elicitation(ticket)
        if not client.can("elicitation/create", asked):
            return self.text_result(client, self._text(ticket), failed=True)
        if client.era == "modern":
            request = {"method": "elicitation/create", "params": asked}
            state = {"requestState": seal(ticket.key)}
            return {"resultType": "input_required", "inputRequests": {KEY: request}, **state}
        asked["elicitationId"] = ticket.key[:16]
        notice = notice_body("notifications/elicitation/complete", {"elicitationId": ticket.key[:16]})
        if not exchange.streams:
            ticket.listeners.append(lambda: client.notify_raw(notice))
            raise Refusal(URL_REQUIRED, asked["message"], {"elicitations": [asked]})
        try:
            answer = await client.ask("elicitation/create", asked, exchange)
        except Refusal:
            return self.text_result(client, self._text(ticket), failed=True)
        if answer.get("action") != "accept":
            return self.text_result(client, f"The user did not log in to {server!r}.", failed=True)
        if not await self._waited(ticket, client):
            return self.text_result(client, self._text(ticket), failed=True)
        exchange.send(notice)
        return None

    async def answered(self, client: Client, key: str, responses: object) -> dict[str, Any] | None:
        """Wait for the login that a client of the 2026 era was asked for.

        Returns:
            The result of the call if the user declined, else None.
        """
        answer = fields(fields(responses).get(KEY))
        ticket = self._tickets.get(key)
        if answer.get("action") in ("decline", "cancel"):
            return self.text_result(client, "The user did not log in.", failed=True)
        if ticket is not None and ticket.principal == client.principal.name:
            await self._waited(ticket, client)
        return None

    async def _waited(self, ticket: Ticket, client: Client) -> bool:
        limit = client.profile.settings.call_timeout or WAIT
        try:
            async with asyncio.timeout(min(limit, WAIT, max(ticket.expires - time.monotonic(), 0))):
                await ticket.ended.wait()
        except TimeoutError:
            return False
        return ticket.done

    def text_result(self, client: Client, text: str, *, failed: bool) -> dict[str, Any]:
        """Return a result with this text."""
        return shaped({"content": [{"type": "text", "text": text}], "isError": failed}, client.era)

    def link(self, client: Client, server: str) -> str:
        """Return a text with the link, for errors."""
        return self._text(self.ticket(client.principal.name, server))

    def _elicitation(self, ticket: Ticket) -> dict[str, Any]:
        message = f"Log in to {ticket.server!r} to go on. The link is for you only, and valid for 5 minutes."
        return {"mode": "url", "message": message, "url": self.address(ticket)}

    def _text(self, ticket: Ticket) -> str:
        return (
            f"{ticket.server!r} needs a login of the user. Ask the user to open this link in a browser, "
            f"within 5 minutes, and call again when that is done: {self.address(ticket)}"
        )

    # --- tickets --------------------------------------------------------------------------------

    def address(self, ticket: Ticket) -> str:
        return f"{self.url}{PATH}{ticket.key}"

    def redirect_uri(self, server: str) -> str:
        """Return the redirect address for a server. Each has its own, so that the response of one
        authorization server is never taken for that of another."""
        return f"{self.url}{CALLBACK}{quote(server, safe='')}"

    def ticket(self, principal: str, server: str) -> Ticket:
        """Return the unused ticket of a principal for a server, or a new one.

        Raises:
            Refusal: There are too many.
        """
        self._forget()
        late = time.monotonic() + TICKET_LIFE / 2
        for known in self._tickets.values():
            same = (known.principal, known.server) == (principal, server)
            if same and known.browser is None and known.expires > late:
                return known
        own = [one for one in self._tickets.values() if one.principal == principal]
        if len(own) >= 64:
            self.drop(own[0])
        if len(self._tickets) >= MAX_TICKETS:
            raise Refusal(-32603, "too many logins are pending; try again later")
        key = self._new_key()
        ticket = Ticket(key=key, principal=principal, server=server, expires=time.monotonic() + TICKET_LIFE)
        self._tickets[key] = ticket
        return ticket

    def find(self, key: str) -> Ticket | None:
        """Return a valid ticket."""
        ticket = self._tickets.get(key)
        return ticket if ticket is not None and ticket.valid else None

    def waiting(self, state: str) -> Ticket | None:
        """Return the ticket whose login has this state."""
        ticket = self._states.get(state)
        return ticket if ticket is not None and ticket.valid else None

    def drop(self, ticket: Ticket) -> None:
        self._tickets.pop(ticket.key, None)
        if ticket.login is not None:
            self._states.pop(ticket.login.state, None)
        if not ticket.ended.is_set():
            ticket.end(done=False)

    def _forget(self) -> None:
        """Drop tickets that have expired; those that ended are kept until then, for calls that ask."""
        now = time.monotonic()
        for ticket in [one for one in self._tickets.values() if one.expires < now]:
            self.drop(ticket)

    async def begin(self, ticket: Ticket) -> Login:
        """Start the login of a ticket.

        Raises:
            AuthNeeded, ConfigError: It cannot be started.
        """
        where = self.redirect_uri(ticket.server)
        ticket.login = await self._host.login(ticket.server, principal=ticket.principal, redirect_uri=where)
        self._states[ticket.login.state] = ticket
        return ticket.login


def public_url(settings: GatewaySettings) -> str | None:
    """Return the address at which browsers reach the gateway."""
    return settings.public_url or settings.url


def check_public(settings: GatewaySettings) -> None:
    """Refuse a public address that browsers must not send secrets to.

    Raises:
        ConfigError: It is neither https nor on this machine.
    """
    public = public_url(settings)
    if not settings.key or public is None:
        return
    try:
        parts = urlsplit(public)
        good = parts.scheme == "https" or (
            parts.scheme == "http" and host_realm(parts.hostname or "") == "loopback"
        )
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"`gateway.public_url` must be an https address for logins, not {public[:200]!r}")


def login_state(params: Mapping[str, Any]) -> bool:
    """Whether the parameters of a request may answer the request for a login."""
    return "requestState" in params and KEY in fields(params.get("inputResponses"))
