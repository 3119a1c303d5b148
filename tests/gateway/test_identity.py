"""The login that is used at a server behind the gateway: the client's or the operator's, never another
client's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.gateway.test_reverse import ABLE, ACCEPTED, QUESTION, answering, fixture
from tests.lab.http import HttpLab
from tests.lab.oauth import AuthLab, browse
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

NAMES = ("ana", "bob", "cleo")
TOKENS = {"tokens": [{"name": name, "token": f"${{{name.upper()}}}"} for name in NAMES]}
ISOLATED = {"isolation": "session"}


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name.upper(), token_of(name))


def token_of(name: str) -> str:
    return f"{name}-0123456789abcdef"


async def logged_in(here: Any, auth: AuthLab, principal: str | None) -> str:
    """The access token that a principal's login brought."""
    before = set(auth.tokens)
    login = await here.host.login("web", principal=principal)
    assert (await browse(login.url))[0] == 200
    await login.done(10)
    [token] = set(auth.tokens) - before
    return token


def carried(lab: HttpLab, auth: AuthLab) -> list[tuple[str, str | None]]:
    """The text of each call that reached the server, with the token that came with it."""
    return [
        (message["params"]["arguments"]["text"], headers.get("Authorization", "").removeprefix("Bearer "))
        for (method, headers), message in zip(lab.seen, lab.messages, strict=True)
        if method == "tools/call"
    ]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_TH04_a_thousand_interleaved_calls_never_carry_the_login_of_another_client(
    serving: Any, era: str
) -> None:
    async with (
        AuthLab(lab=HttpLab(era=era)) as auth,
        serving(auth.config(**ISOLATED), gateway=TOKENS) as here,
    ):
        operator = await logged_in(here, auth, None)  # the catalog is what the operator is shown
        await here.host.refresh("web")
        whose = {name: await logged_in(here, auth, f"token:{name}") for name in NAMES[:2]}
        clients = {
            (name, modern): await here.caller(modern=modern, token=token_of(name))
            for name in NAMES
            for modern in (False, True)
        }
        gate = asyncio.Semaphore(32)

        async def one(number: int) -> None:
            name, modern = list(clients)[number % len(clients)]
            async with gate:
                reply = await clients[name, modern].call("echo", {"text": f"{name} {number}"})
            if name in whose:
                assert reply.text == f"{name} {number}"
            else:
                assert "mooring login web --principal token:cleo" in reply.text

        await asyncio.gather(*(one(number) for number in range(1002)))
        reached = carried(auth.lab, auth)
        assert len(reached) == 668
        assert all(token == whose[text.split()[0]] for text, token in reached)
        assert operator not in {token for _, token in reached}
        assert len({operator, *whose.values()}) == 3


async def test_a_shared_server_is_called_with_the_operators_login_for_every_client(serving: Any) -> None:
    async with AuthLab() as auth, serving(auth.config(), gateway=TOKENS) as here:
        operator = await logged_in(here, auth, None)
        for name in NAMES:
            client = await here.caller(token=token_of(name))
            assert (await client.call("echo", {"text": name})).text == name
        assert {token for _, token in carried(auth.lab, auth)} == {operator}


async def test_a_named_client_can_begin_a_login_of_its_own_and_none_that_others_would_use(
    serving: Any,
) -> None:
    async with (
        AuthLab() as shared,
        AuthLab() as own,
        serving(shared.config("team"), own.config("mine", **ISOLATED), gateway=TOKENS, style="mcp") as here,
    ):
        ana = await here.caller(token=token_of("ana"))
        assert await ana.tools() == ["mcp_mine_authenticate"]
        assert (await ana.call("mcp_team_authenticate")).error["code"] == -32602
        asked = await ana.call("mcp_mine_authenticate")
        address = next(word for word in asked.text.split() if word.startswith(own.issuer))
        assert (await browse(address))[0] == 200
        bob = await here.caller(token=token_of("bob"))
        assert "authenticate" in (await bob.tools())[0]  # it was Ana who logged in
        assert shared.tokens == {}


async def test_without_tokens_every_client_is_the_operator(serving: Any) -> None:
    async with AuthLab() as auth, serving(auth.config(**ISOLATED)) as here:
        operator = await logged_in(here, auth, None)
        client = await here.caller()
        assert (await client.call("echo", {"text": "hi"})).text == "hi"
        assert carried(auth.lab, auth) == [("hi", operator)]


async def test_a_login_of_a_principal_at_a_shared_server_is_refused_with_the_reason(serving: Any) -> None:
    async with AuthLab() as auth, serving(auth.config(), gateway=TOKENS) as here:
        with pytest.raises(Exception, match="isolation: session"):
            await here.host.login("web", principal="token:ana")


async def test_a_server_that_each_session_has_for_itself_asks_the_right_client_while_others_are_busy(
    serving: Any,
) -> None:
    isolated = replace(fixture(era="legacy"), isolation="session")
    async with serving(isolated) as here:
        one, other = [await here.caller(modern=False, capabilities=ABLE) for _ in range(2)]
        busy = asyncio.create_task(other.call("test_slow"))
        await until(lambda: here.serving.gateway.under_way == 1)
        asked, answer = await answering(one, "test_elicitation", ACCEPTED)
        assert asked["params"]["message"] == QUESTION["message"]
        assert "action=accept" in answer["result"]["content"][0]["text"]
        assert not busy.done()
        busy.cancel()
