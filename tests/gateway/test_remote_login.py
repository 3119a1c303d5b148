"""A user logs in to a server through the gateway, from an own browser: bound to one principal and browser.

The browsers here are HTTP clients with cookies; `make test-remote-login` does the same in Chromium.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from mooring import Host, HostConfig
from mooring.auth.cipher import LoginCipher
from mooring.config.sections import GatewaySettings
from mooring.gateway import login_pages
from mooring.gateway.logins import RemoteLogins
from tests.gateway.test_identity import ISOLATED, NAMES, TOKENS, carried, logged_in, token_of
from tests.lab.caller import events
from tests.lab.oauth import AuthLab

pytestmark = pytest.mark.anyio

KEY = "a key of at least thirty-two characters"
URL_ABLE = {"elicitation": {"form": {}, "url": {}}}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name.upper(), token_of(name))
    monkeypatch.setenv("LOGIN_KEY", KEY)


@asynccontextmanager
async def gateway_of(serving: Any, *labs: AuthLab, **more: Any) -> AsyncIterator[Any]:
    """A gateway with a public address in front of these servers, which the operator has listed."""
    port = free_port()
    settings = {**TOKENS, "public_url": f"http://127.0.0.1:{port}", "key": "${LOGIN_KEY}", **more}
    servers = [lab.config(f"web{number or ''}", **ISOLATED) for number, lab in enumerate(labs)]
    async with serving(*servers, gateway=settings, options={"port": port}, style="server") as here:
        for server in servers:
            login = await here.host.login(server.name)
            async with aiohttp.ClientSession() as person, person.get(login.url) as page:
                assert page.status == 200
            await login.done(10)
        await here.host.refresh()
        yield here


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Browser:
    """A browser with its own cookies."""

    def __init__(self, origin: str) -> None:
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        self.origin = origin

    async def __aenter__(self) -> Browser:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    async def open(self, url: str, **options: Any) -> tuple[int, str]:
        async with self.http.get(url, allow_redirects=False, **options) as page:
            return page.status, await page.text()

    async def submit(self, url: str, token: str | None, **changes: Any) -> tuple[int, str]:
        """Fill in the form of a link and send it, as the page does."""
        _, page = await self.open(url)
        found = re.search(r'name="check" value="(\w+)"', page)
        form = {"check": found[1] if found else "", **({} if token is None else {"token": token})}
        headers = {"Origin": self.origin, **changes.pop("headers", {})}
        async with self.http.post(
            url, data={**form, **changes}, headers=headers, allow_redirects=False
        ) as page:
            return page.status, await page.text()

    async def begin(self, url: str, token: str | None) -> str:
        """The address at the authorization server to which the form leads."""
        status, page = await self.submit(url, token)
        assert status == 200, page
        return unescape(re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', page)[1])  # type: ignore[index]

    async def agree(self, where: str) -> str:
        """Log in there; the address to which that leads back."""
        async with self.http.get(where, allow_redirects=False) as answer:
            assert answer.status == 302
            return answer.headers["Location"]

    async def log_in(self, url: str, token: str | None) -> tuple[int, str]:
        return await self.open(await self.agree(await self.begin(url, token)))


def link_in(text: str) -> str:
    return next(word for word in text.split() if "/login/" in word)


def test_a_public_address_without_a_key_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def identify(token: str) -> None: ...

    logins = RemoteLogins(Host(HostConfig(servers=())), lambda: "")
    for settings, said in (({}, 0), ({"public_url": "https://mcp.example.com"}, 1)):
        caplog.clear()
        logins.configure(GatewaySettings(**settings), identify)
        assert (logins.url, len(caplog.records)) == (None, said)


async def test_a_client_that_cannot_open_links_gets_one_in_the_error_and_its_next_call_is_its_own(
    serving: Any,
) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here:
        for modern in (True, False):
            ana = await here.caller(token=token_of("ana"), modern=modern)
            said = (await ana.call("web_echo", {"text": "x"})).result
            if modern:
                assert said["isError"] is True
                async with Browser(here.base) as browser:
                    link = link_in(said["content"][0]["text"])
                    assert link.startswith(f"{here.base}/login/")
                    status, page = await browser.log_in(link, token_of("ana"))
                    assert (status, "Login complete" in page) == (200, True)
                    assert (await browser.open(link))[0] == 404  # one use
                said = (await ana.call("web_echo", {"text": "x"})).result
            assert said["content"][0]["text"] == "x"
        bob = await here.caller(token=token_of("bob"))
        assert "/login/" in (await bob.call("web_echo", {"text": "y"})).text
        assert [text for text, _ in carried(auth.lab, auth)] == ["x", "x"]


async def test_a_client_of_2026_that_opens_links_is_asked_and_its_call_goes_on_after_the_login(
    serving: Any,
) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here, Browser(here.base) as browser:
        ana = await here.caller(token=token_of("ana"), capabilities=URL_ABLE)
        asked = (await ana.call("web_echo", {"text": "x"})).result
        assert asked["resultType"] == "input_required"
        [(key, request)] = asked["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        assert request["params"]["mode"] == "url"
        answers = {key: {"action": "accept"}}
        again = asyncio.create_task(
            ana.call("web_echo", {"text": "x"}, inputResponses=answers, requestState=asked["requestState"])
        )
        status, _ = await browser.log_in(request["params"]["url"], token_of("ana"))
        assert status == 200
        assert (await again).text == "x"
        # The state is bound to the client and the tool.
        bob = await here.caller(token=token_of("bob"), capabilities=URL_ABLE)
        stolen = await bob.call(
            "web_echo", {"text": "y"}, inputResponses=answers, requestState=asked["requestState"]
        )
        assert stolen.error["code"] == -32602


async def test_a_user_who_declines_is_not_asked_in_circles(serving: Any) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here:
        ana = await here.caller(token=token_of("ana"), capabilities=URL_ABLE)
        asked = (await ana.call("web_echo", {"text": "x"})).result
        answer = {"login": {"action": "decline"}}
        reply = await ana.call(
            "web_echo", {"text": "x"}, inputResponses=answer, requestState=asked["requestState"]
        )
        assert "did not log in" in reply.text
        assert carried(auth.lab, auth) == []


async def test_a_client_of_2025_is_asked_during_its_call(serving: Any) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here, Browser(here.base) as browser:
        ana = await here.caller(token=token_of("ana"), modern=False, capabilities=URL_ABLE)
        body, headers = ana.message("tools/call", {"name": "web_echo", "arguments": {"text": "x"}}, 77)
        seen: list[dict[str, Any]] = []
        async with ana.stream(body, headers) as messages:
            async for message in messages:
                seen.append(message)
                if message.get("method") == "elicitation/create":
                    answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"action": "accept"}}
                    await ana.post(answer, ana.message("x", None, None)[1])
                    status, _ = await browser.log_in(message["params"]["url"], token_of("ana"))
                    assert status == 200
                if message.get("id") == 77:
                    break
        asked, complete, result = seen
        assert complete["method"] == "notifications/elicitation/complete"
        assert complete["params"]["elicitationId"] == asked["params"]["elicitationId"]
        assert result["result"]["content"][0]["text"] == "x"


async def test_a_client_of_2025_without_a_stream_gets_error_32042_and_hears_when_the_login_is_done(
    serving: Any,
) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here, Browser(here.base) as browser:
        ana = await here.caller(token=token_of("ana"), modern=False, capabilities=URL_ABLE)
        call = {"name": "web_echo", "arguments": {"text": "x"}}
        error = (await ana.ask("tools/call", call, Accept="application/json")).error
        assert error["code"] == -32042
        [asked] = error["data"]["elicitations"]
        assert asked["mode"] == "url"
        headers = {**ana.message("x", None, None)[1], "Accept": "text/event-stream"}
        async with here.http.get(ana.url, headers=headers) as stream:
            assert (await browser.log_in(asked["url"], token_of("ana")))[0] == 200
            heard = await anext(events(stream))
        assert heard["method"] == "notifications/elicitation/complete"
        assert heard["params"]["elicitationId"] == asked["elicitationId"]
        assert (await ana.ask("tools/call", call, Accept="application/json")).text == "x"


async def test_the_tool_authenticate_leads_to_the_same_login(serving: Any) -> None:
    async with AuthLab() as auth:
        port = free_port()
        settings = {**TOKENS, "public_url": f"http://127.0.0.1:{port}", "key": "${LOGIN_KEY}"}
        server = auth.config("web", **ISOLATED)
        async with serving(server, gateway=settings, options={"port": port}, style="server") as here:
            ana = await here.caller(token=token_of("ana"))
            assert await ana.tools() == ["web_authenticate"]
            link = link_in((await ana.call("web_authenticate")).text)
            async with Browser(here.base) as browser:
                assert (await browser.log_in(link, token_of("ana")))[0] == 200
            done = (await ana.call("web_authenticate")).result
            assert (done.get("isError"), "Logged in" in done["content"][0]["text"]) == (False, True)


async def test_two_principals_log_in_at_once_and_get_their_own_tokens(serving: Any) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here:
        before = set(auth.tokens)

        async def one(name: str) -> None:
            client = await here.caller(token=token_of(name))
            async with Browser(here.base) as browser:
                link = link_in((await client.call("web_echo", {"text": "?"})).text)
                assert (await browser.log_in(link, token_of(name)))[0] == 200
            for number in range(10):
                assert (
                    await client.call("web_echo", {"text": f"{name} {number}"})
                ).text == f"{name} {number}"

        await asyncio.gather(one("ana"), one("bob"))
        used: dict[str, set[str | None]] = {}
        for text, token in carried(auth.lab, auth):
            used.setdefault(text.split()[0], set()).add(token)
        assert [len(tokens) for tokens in used.values()] == [1, 1]
        assert set.union(*used.values()) == set(auth.tokens) - before  # type: ignore[arg-type]


# --- attacks --------------------------------------------------------------------------------------


async def test_a_link_that_is_sent_to_another_user_gives_the_sender_nothing(serving: Any) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here, Browser(here.base) as victim:
        mallory = await here.caller(token=token_of("bob"))
        link = link_in((await mallory.call("web_echo", {"text": "x"})).text)
        before = len(auth.requests)
        status, page = await victim.submit(link, token_of("ana"))  # Ana, who believes that it is hers
        assert (status, "not the token of this client" in page) == (403, True)
        assert "token:bob" in page
        assert len(auth.requests) == before
        # Her own login in the same browser does not make the link of another good.
        ana = await here.caller(token=token_of("ana"))
        own = link_in((await ana.call("web_echo", {"text": "x"})).text)
        assert (await victim.log_in(own, token_of("ana")))[0] == 200
        assert (await victim.submit(link, None))[0] == 403
        assert "/login/" in (await mallory.call("web_echo", {"text": "x"})).text


async def test_wrong_tokens_use_a_link_up(serving: Any) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here, Browser(here.base) as browser:
        ana = await here.caller(token=token_of("ana"))
        link = link_in((await ana.call("web_echo", {"text": "x"})).text)
        statuses = [(await browser.submit(link, f"guess {n}"))[0] for n in range(login_pages.MAX_PROOFS)]
        assert statuses == [403] * (login_pages.MAX_PROOFS - 1) + [404]
        assert (await browser.submit(link, token_of("ana")))[0] == 404
        assert link_in((await ana.call("web_echo", {"text": "x"})).text) != link


FORGED: dict[str, dict[str, Any]] = {
    "another site": {"headers": {"Origin": "https://evil.example"}},
    "no origin": {"headers": {"Origin": "null"}},
    "no check": {"check": ""},
    "a wrong check": {"check": "0" * 64},
}


@pytest.mark.parametrize("kind", FORGED)
async def test_a_form_that_another_site_sends_is_refused(serving: Any, kind: str) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here, Browser(here.base) as browser:
        ana = await here.caller(token=token_of("ana"))
        link = link_in((await ana.call("web_echo", {"text": "x"})).text)
        before = len(auth.requests)
        status, _ = await browser.submit(link, token_of("ana"), **FORGED[kind])
        assert status == 403
        assert len(auth.requests) == before
        assert (await browser.log_in(link, token_of("ana")))[0] == 200  # the link is still good


async def test_the_check_of_one_browser_is_worth_nothing_in_another(serving: Any) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here:
        ana = await here.caller(token=token_of("ana"))
        link = link_in((await ana.call("web_echo", {"text": "x"})).text)
        async with Browser(here.base) as one, Browser(here.base) as other:
            _, page = await one.open(link)
            check = re.search(r'name="check" value="(\w+)"', page)[1]  # type: ignore[index]
            assert (await other.submit(link, token_of("ana"), check=check))[0] == 403


async def test_the_way_back_is_good_once_and_only_in_the_browser_that_began(serving: Any) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here:
        ana = await here.caller(token=token_of("ana"))
        link = link_in((await ana.call("web_echo", {"text": "x"})).text)
        async with Browser(here.base) as own, Browser(here.base) as other:
            back = await own.agree(await own.begin(link, token_of("ana")))
            assert (await other.open(back))[0] == 400  # a stolen address
            await other.open(link)
            assert (await other.open(back))[0] == 400  # with a cookie of its own
            assert (await own.open(back + "&state=second"))[0] == 400
            assert (await own.open(back.replace("state=", "state=x")))[0] == 400
            assert (await own.open(back))[0] == 200
            assert (await own.open(back))[0] == 400  # replayed
        assert auth.count("/token", grant_type="authorization_code") == 2  # the operator's, and this one


async def test_login_csrf_does_not_log_a_user_in_as_the_attacker(serving: Any) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here:
        mallory = await here.caller(token=token_of("bob"))
        link = link_in((await mallory.call("web_echo", {"text": "x"})).text)
        async with Browser(here.base) as attacker, Browser(here.base) as victim:
            back = await attacker.agree(await attacker.begin(link, token_of("bob")))
            await victim.open(link)
            assert (await victim.open(back))[0] == 400
        ana = await here.caller(token=token_of("ana"))
        assert "/login/" in (await ana.call("web_echo", {"text": "x"})).text


async def test_answers_of_two_authorization_servers_are_not_mixed_up(serving: Any) -> None:
    async with (
        AuthLab(names_itself=False, iss="") as honest,
        AuthLab(names_itself=False, iss="") as evil,
        gateway_of(serving, honest, evil) as here,
        Browser(here.base) as browser,
    ):
        ana = await here.caller(token=token_of("ana"))
        links = [link_in((await ana.call(f"{name}_echo", {"text": "x"})).text) for name in ("web", "web1")]
        good = await browser.agree(await browser.begin(links[0], token_of("ana")))
        bad = await browser.agree(await browser.begin(links[1], None))
        code = parse_qs(urlsplit(good).query)["code"][0]
        state = parse_qs(urlsplit(bad).query)["state"][0]
        before = evil.count("/token")
        # The honest server's code, sent to the gateway with the state of the login at the evil one.
        where = good.partition("?")[0]
        assert (await browser.open(f"{where}?code={code}&state={state}"))[0] == 400
        assert evil.count("/token") == before
        assert code not in str(evil.requests)
        assert urlsplit(good).path != urlsplit(bad).path


async def test_an_answer_that_names_another_issuer_ends_the_login(serving: Any) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here, Browser(here.base) as browser:
        auth.iss = "https://other.example"
        ana = await here.caller(token=token_of("ana"))
        link = link_in((await ana.call("web_echo", {"text": "x"})).text)
        before = auth.count("/token")
        status, page = await browser.log_in(link, token_of("ana"))
        assert (status, "Login failed" in page) == (400, True)
        assert auth.count("/token") == before


async def test_opening_a_link_has_no_effect_and_the_page_cannot_be_framed(serving: Any) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here, Browser(here.base) as browser:
        ana = await here.caller(token=token_of("ana"))
        link = link_in((await ana.call("web_echo", {"text": "x"})).text)
        before = len(auth.requests)
        async with aiohttp.ClientSession() as preview:
            for _ in range(3):
                async with preview.get(link) as page:
                    assert page.status == 200
                    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
                    cookie = page.headers["Set-Cookie"]
                    assert "HttpOnly" in cookie
                    assert "SameSite=Lax" in cookie
        assert len(auth.requests) == before
        assert (await browser.open(link, headers={"Host": "localhost:1"}))[0] == 400
        assert (await browser.log_in(link, token_of("ana")))[0] == 200


async def test_names_of_servers_and_principals_are_not_markup(serving: Any) -> None:
    name = "<img src=x onerror=alert(1)>"
    port = free_port()
    settings = {**TOKENS, "public_url": f"http://127.0.0.1:{port}", "key": "${LOGIN_KEY}"}
    async with AuthLab() as auth:
        server = auth.config(name, **ISOLATED)
        async with serving(server, gateway=settings, options={"port": port}) as here:
            ana = await here.caller(token=token_of("ana"))
            [tool] = await ana.tools()
            link = link_in((await ana.call(tool)).text)
            async with Browser(here.base) as browser:
                _, page = await browser.open(link)
                assert "<img" not in page
                assert "&lt;img" in page
                assert (await browser.log_in(link, token_of("ana")))[0] == 200


# --- tokens at rest -------------------------------------------------------------------------------


def stored() -> list[Path]:
    return sorted((Path(os.environ["MOORING_HOME"]) / "oauth").glob("*.json"))


async def test_tokens_of_clients_are_encrypted_and_bound_to_their_principal(serving: Any) -> None:
    async with AuthLab() as auth, gateway_of(serving, auth) as here:
        operators = set(stored())
        files: dict[str, Path] = {}
        for name in ("ana", "bob"):
            known = set(stored())
            client = await here.caller(token=token_of(name))
            async with Browser(here.base) as browser:
                link = link_in((await client.call("web_echo", {"text": "x"})).text)
                assert (await browser.log_in(link, token_of(name)))[0] == 200
            [files[name]] = set(stored()) - known
        secrets = [*auth.tokens, *auth.refresh]
        text = "".join(file.read_text() for file in files.values())
        assert not [secret for secret in secrets if secret in text]
        assert set(json.loads(files["ana"].read_text())["secrets"]) == {"sealed"}
        assert operators.isdisjoint(files.values())
        files["bob"].write_bytes(files["ana"].read_bytes())  # as a thief with access to the disk
        files["bob"].chmod(0o600)
        bob = await here.caller(token=token_of("bob"), modern=False)
        assert "/login/" in (await bob.call("web_echo", {"text": "stolen"})).text
        assert "stolen" not in [text for text, _ in carried(auth.lab, auth)]


async def test_logins_survive_a_restart_with_the_same_key_and_not_with_another(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AuthLab() as auth:
        async with gateway_of(serving, auth) as here, Browser(here.base) as browser:
            ana = await here.caller(token=token_of("ana"))
            link = link_in((await ana.call("web_echo", {"text": "x"})).text)
            assert (await browser.log_in(link, token_of("ana")))[0] == 200
        async with gateway_of(serving, auth) as here:
            ana = await here.caller(token=token_of("ana"))
            assert (await ana.call("web_echo", {"text": "again"})).text == "again"
        monkeypatch.setenv("LOGIN_KEY", KEY[::-1])
        async with gateway_of(serving, auth) as here:
            ana = await here.caller(token=token_of("ana"))
            assert "/login/" in (await ana.call("web_echo", {"text": "lost"})).text


async def test_a_login_that_was_stored_without_a_key_is_encrypted_when_there_is_one(serving: Any) -> None:
    async with AuthLab() as auth:
        async with gateway_of(serving, auth, key=None) as here:
            known = set(stored())
            await logged_in(here, auth, "token:ana")
            [file] = set(stored()) - known
            assert "access" in json.loads(file.read_text())["secrets"]
        async with gateway_of(serving, auth) as here:
            ana = await here.caller(token=token_of("ana"))
            assert (await ana.call("web_echo", {"text": "x"})).text == "x"
            assert set(json.loads(file.read_text())["secrets"]) == {"sealed"}


async def test_without_a_key_or_an_address_clients_get_the_command_as_before(serving: Any) -> None:
    for missing in ({"key": None}, {"public_url": None}):
        async with AuthLab() as auth, gateway_of(serving, auth, **missing) as here:
            ana = await here.caller(token=token_of("ana"))
            assert (
                "mooring login web --principal token:ana" in (await ana.call("web_echo", {"text": "x"})).text
            )
            async with here.http.get(f"{here.base}/login/anything") as page:
                assert page.status == 404


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"public_url": "http://gateway.example", "key": "${LOGIN_KEY}"}, "https"),
        ({"public_url": "https://gateway.example", "key": "${SHORT_KEY}"}, "at least 32 characters"),
        ({"public_url": "https://gateway.example", "key": "${NO_SUCH_KEY}"}, "NO_SUCH_KEY"),
    ],
)
async def test_settings_that_would_not_protect_logins_are_refused(
    serving: Any, settings: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORT_KEY", "short")
    with pytest.raises(Exception, match=reason):
        async with serving(gateway={**TOKENS, **settings}):
            pass


def test_a_key_in_the_file_itself_is_refused() -> None:
    with pytest.raises(Exception, match="one reference"):
        GatewaySettings(key="a literal key of more than thirty-two characters")


def test_a_sealed_text_opens_only_with_its_key_and_its_name() -> None:
    cipher = LoginCipher("${LOGIN_KEY}")
    sealed = cipher.seal("secret", "ana")
    assert cipher.open(sealed, "ana") == "secret"
    assert cipher.open(sealed, "bob") is None
    assert cipher.open(sealed[:-4] + "AAAA", "ana") is None
    assert cipher.open("no base64!", "ana") is None
    assert cipher.seal("secret", "ana") != sealed
    assert KEY not in repr(cipher)
