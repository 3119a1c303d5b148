"""Servers that are called on behalf of the gateway's clients: their tokens are exchanged, never passed on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.http import HttpLab
from tests.lab.idp import EXCHANGE, TYPE, IdpLab, public
from tests.lab.oauth import AuthLab

pytestmark = pytest.mark.anyio

GATEWAY = "https://gateway.example/mcp"
API = "https://api.example"


class Office:
    """An identity provider, a server behind the gateway, and what is set where."""

    def __init__(self, idp: IdpLab, auth: AuthLab, folder: Path) -> None:
        self.idp, self.auth, self.folder = idp, auth, folder
        (folder / "key.pem").write_text(public(idp.own_key))
        oauth = {"issuer": idp.issuer, "key_file": str(folder / "key.pem"), "algorithms": ["ES256"]}
        self.gateway = {"oauth": oauth, "url": "https://gateway.example"}

    def token(self, user: str, **claims: Any) -> str:
        """What a client shows to the gateway."""
        return self.idp.id_token(user, **{"aud": GATEWAY, **claims})

    def exchanging(self, **more: Any) -> Any:
        service = {"issuer": self.idp.issuer, "client_id": "host", "client_secret": "s3cret-idp"}
        service |= {"audience": API, "scope": "mcp", "subject_token": self.idp.id_token("operator")}
        return self.auth.config(auth={"exchange": {**service, **more}})

    def vouched(self) -> Any:
        """The same server with enterprise-managed authorization."""
        self.idp.trusted_by(self.auth)
        self.auth.clients["mooring"] = {"client_secret": "s3cret-as"}
        idp = {"issuer": self.idp.issuer, "client_id": "host", "client_secret": "s3cret-idp"}
        idp["subject_token"] = self.idp.id_token("operator")
        own = {"client_id": "mooring", "client_secret": "s3cret-as", "idp": idp}
        return self.auth.config(auth=own, isolation="session")

    def users(self) -> list[tuple[str, str | None]]:
        """The text of each call that reached the server, and for whom its token was issued."""
        return [
            (
                message["params"]["arguments"]["text"],
                self.auth.tokens[headers["Authorization"].removeprefix("Bearer ")].user,
            )
            for (method, headers), message in zip(self.auth.lab.seen, self.auth.lab.messages, strict=True)
            if method == "tools/call"
        ]

    def reached_server(self) -> str:
        """Everything that came to the server or its authorization server."""
        lab = self.auth.lab
        return str(lab.seen) + str(lab.messages) + str(self.auth.requests) + str(self.auth.seen_tokens)


@asynccontextmanager
async def office(folder: Path, era: str = "dual", **settings: Any) -> AsyncIterator[Office]:
    async with IdpLab(**settings) as idp, AuthLab(lab=HttpLab(era=era)) as auth:
        idp.audiences = {API: auth, auth.lab.url: auth}
        yield Office(idp, auth, folder)


@pytest.mark.parametrize("way", ["exchange", "enterprise"])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_interleaved_calls_act_for_their_own_client_and_its_token_never_leaves(
    serving: Any, tmp_path: Path, way: str, era: str
) -> None:
    async with office(tmp_path, era) as at:
        server = at.exchanging() if way == "exchange" else at.vouched()
        async with serving(server, gateway=at.gateway) as here:
            tokens = {user: at.token(user) for user in ("ana", "bob", "cleo")}
            clients = {
                (user, modern): await here.caller(modern=modern, token=token)
                for user, token in tokens.items()
                for modern in (True, False)
            }
            before = len(at.idp.requests)

            async def one(number: int) -> None:
                user, modern = list(clients)[number % len(clients)]
                reply = await clients[user, modern].call("echo", {"text": f"{user} {number}"})
                assert reply.text == f"{user} {number}"

            await asyncio.gather(*(one(number) for number in range(120)))
            assert len(at.idp.requests) - before == 3  # once for each client, in both eras together
        assert len(at.users()) == 120
        assert all(user == text.split()[0] for text, user in at.users())
        assert not [token for token in tokens.values() if token in at.reached_server()]


async def test_the_exchange_says_for_whom_for_what_and_by_whom(serving: Any, tmp_path: Path) -> None:
    async with office(tmp_path) as at, serving(at.exchanging(), gateway=at.gateway) as here:
        token = at.token("ana")
        client = await here.caller(token=token)
        assert (await client.call("echo", {"text": "x"})).text == "x"
        asked = at.idp.requests[-1]
        assert asked["grant_type"] == EXCHANGE
        assert (asked["subject_token"], asked["subject_token_type"]) == (token, f"{TYPE}access_token")
        assert (asked["audience"], asked["scope"]) == (API, "mcp")
        assert "resource" not in asked
        [mine] = [one for one in at.auth.tokens.values() if one.user == "ana"]
        assert (mine.actor, mine.scopes) == ("host", {"mcp"})


async def test_a_new_token_of_the_same_client_is_exchanged_again(serving: Any, tmp_path: Path) -> None:
    async with office(tmp_path) as at, serving(at.exchanging(), gateway=at.gateway) as here:
        for modern in (True, False):
            client = await here.caller(modern=modern, token=at.token("ana"))
            await client.call("echo", {"text": "one"})
            before = len(at.idp.requests)
            narrow = at.token("ana", scope="less")
            client.headers["Authorization"] = f"Bearer {narrow}"
            if not modern:  # a session belongs to the scopes it was opened with
                await client.begin()
            assert (await client.call("echo", {"text": "two"})).text == "two"
            assert [form["subject_token"] for form in at.idp.requests[before:]][:1] == [narrow]


async def test_a_client_that_renews_its_token_keeps_its_connection(serving: Any, tmp_path: Path) -> None:
    async with office(tmp_path, "legacy") as at, serving(at.exchanging(), gateway=at.gateway) as here:
        client = await here.caller(modern=False, token=at.token("ana"))
        await client.call("echo", {"text": "one"})
        sessions = len(at.auth.lab.live_sessions)
        client.headers["Authorization"] = f"Bearer {at.token('ana')}"
        assert (await client.call("echo", {"text": "two"})).text == "two"
        assert len(at.auth.lab.live_sessions) == sessions
        assert [user for _, user in at.users()] == ["ana", "ana"]


@pytest.mark.parametrize("way", ["exchange", "enterprise"])
async def test_the_audit_line_names_the_identity_chain(serving: Any, tmp_path: Path, way: str) -> None:
    file = tmp_path / "audit.jsonl"
    async with office(tmp_path) as at:
        server = at.exchanging() if way == "exchange" else at.vouched()
        async with serving(server, gateway={**at.gateway, "audit": str(file)}) as here:
            for modern in (True, False):
                client = await here.caller(modern=modern, token=at.token("ana"))
                await client.call("echo", {"text": "x"})
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        who = f"{at.idp.issuer}#ana"
        steps = [who, f"host at {at.idp.issuer}"]
        steps += [API] if way == "exchange" else [f"mooring at {at.auth.issuer}", at.auth.lab.url]
        assert [line["identity"] for line in lines if line["verb"] == "call"] == [steps, steps]
        assert {line["principal"] for line in lines} == {who}


async def test_a_client_without_a_signed_token_is_not_served_with_another_identity(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOT", "bot-0123456789abcdef")
    async with office(tmp_path) as at:
        gateway = {**at.gateway, "tokens": [{"name": "bot", "token": "${BOT}"}]}
        async with serving(at.exchanging(), gateway=gateway) as here:
            bot = await here.caller(token="bot-0123456789abcdef")
            said = (await bot.call("echo", {"text": "x"})).text
            assert "'token:bot' has no token that could be exchanged" in said
            assert "`gateway.oauth`" in said
        assert at.users() == []


async def test_without_a_token_of_the_operator_nothing_is_listed_and_nothing_is_sent(
    serving: Any, tmp_path: Path
) -> None:
    async with office(tmp_path) as at:
        async with serving(at.exchanging(subject_token=None), gateway=at.gateway) as here:
            assert "there is no token to exchange" in str(here.host.status()[0].error)
        assert at.auth.lab.seen == []


REFUSED = {
    "denied": ({"denies": "access_denied"}, "the token exchange at", "access_denied"),
    "echo": ({}, "returned the caller's own token", ""),
    "not bearer": ({"answer": {"token_type": "DPoP"}}, "not 'Bearer'", ""),
    "another kind": (
        {"answer": {"issued_token_type": "urn:ietf:params:oauth:token-type:id_token"}},
        "issued_token_type is not urn:ietf:params:oauth:token-type:access_token",
        "the token exchange at",
    ),
    "too large": ({"says": "x" * 300_000}, "too large or damaged", "the token exchange at"),
    "no token": ({"answer": {"access_token": ""}}, "no usable access token", ""),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_exchange_sends_nothing_to_the_server_and_says_why(
    serving: Any, tmp_path: Path, case: str
) -> None:
    settings, reason, word = REFUSED[case]
    async with office(tmp_path) as at, serving(at.exchanging(), gateway=at.gateway) as here:
        for name, value in settings.items():
            setattr(at.idp, name, value)
        token = at.token("ana")
        if case == "echo":
            at.idp.answer = {"access_token": token}
        known = set(at.auth.seen_tokens)
        client = await here.caller(token=token)
        said = (await client.call("echo", {"text": "x"})).text
        assert reason in said
        assert word in said
        assert token not in said
        assert at.users() == []
        assert set(at.auth.seen_tokens) == known  # the operator's connection may go on listening


async def test_an_audience_that_the_token_service_does_not_know_is_refused_by_name(
    serving: Any, tmp_path: Path
) -> None:
    async with office(tmp_path) as at:
        async with serving(at.exchanging(audience="https://wrong.example"), gateway=at.gateway) as here:
            assert "invalid_target" in str(here.host.status()[0].error)


async def test_an_expired_token_of_a_client_is_not_exchanged(serving: Any, tmp_path: Path) -> None:
    async with office(tmp_path) as at, serving(at.exchanging(), gateway=at.gateway) as here:
        # Within the tolerance of the gateway's clock, and too old for an exchange.
        client = await here.caller(token=at.token("ana", exp=int(time.time()) - 10))
        assert "must not have expired" in (await client.call("echo", {"text": "x"})).text
        assert at.users() == []


async def test_a_scope_that_a_call_needs_is_added_to_the_exchange(serving: Any, tmp_path: Path) -> None:
    async with office(tmp_path) as at, serving(at.exchanging(), gateway=at.gateway) as here:
        at.auth.needs = {"echo": "write"}
        client = await here.caller(token=at.token("ana"))
        assert (await client.call("echo", {"text": "x"})).text == "x"
        assert at.idp.requests[-1]["scope"] == "mcp write"
