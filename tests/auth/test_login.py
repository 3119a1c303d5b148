"""From a 401 to the tools: every kind of login, with a real authorization server on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mooring import AuthNeeded, Host, Login, SyncHost
from mooring.core import events
from mooring.core.names import LOGIN, assign
from tests.lab.http import HttpLab
from tests.lab.oauth import AuthLab, browse, query_of
from tests.lab.wait import until

CLIENT = {"client_id": "ours", "client_secret": "planted-client-secret"}


def names(host: Host) -> set[str]:
    return set(host.catalog.tools)


async def log_in(host: Host, server: str = "web") -> Login:
    login = await host.login(server)
    assert (await browse(login.url))[0] == 200
    await login.done(20)
    return login


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("hint", [True, False])
async def test_a_login_turns_needs_auth_into_tools(era: str, hint: bool, hosting: Any) -> None:
    async with AuthLab(lab=HttpLab(era=era), hint=hint) as auth, hosting(auth.config()) as host:
        (status,) = host.status()
        assert status.state == "needs-auth"
        assert "mooring login web" in (status.error or "")
        login = await log_in(host)
        assert (login.server, f"http://{login.host}") == ("web", auth.issuer)
        assert host.status()[0].state == "connected"
        assert names(host) == {"mcp_web_echo", "mcp_web_sleep"}
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
        assert query_of(login.url)["resource"] == auth.lab.url
        assert auth.count("/token", resource=auth.lab.url) == 1
        (registered,) = auth.clients.values()
        assert registered["application_type"] == "native"


async def test_an_old_sse_server_is_logged_in_to_as_well(hosting: Any) -> None:
    async with AuthLab(lab=HttpLab(era="legacy")) as auth:
        url = auth.lab.url.replace("/mcp", "/sse")
        auth.protected = {"resource": url}
        async with hosting(auth.config(url=url, transport="sse")) as host:
            await log_in(host)
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"


async def test_a_server_of_2025_03_without_metadata_of_its_own_is_its_own_authorization_server(
    hosting: Any,
) -> None:
    async with AuthLab(protected=None, hint=False, at_home=True) as auth, hosting(auth.config()) as host:
        login = await log_in(host)
        assert query_of(login.url)["resource"] == auth.lab.url
        assert "mcp_web_echo" in names(host)


@pytest.mark.parametrize(
    ("style", "tool"),
    [
        ("mcp", "mcp_web_authenticate"),
        ("double", "mcp__web__authenticate"),
        ("server", "web_authenticate"),
        ("raw", "authenticate"),
    ],
)
async def test_O1_the_tool_authenticate_stands_for_the_server_until_the_login(
    style: str, tool: str, hosting: Any
) -> None:
    changes: list[int] = []
    async with AuthLab() as auth:
        server = auth.config(allow=["echo"])
        async with hosting(server, style=style, on_tools_changed=lambda: changes.append(1)) as host:
            assert names(host) == {tool}
            stream = host.events()
            result = await host.call(tool)
            assert result.is_error
            assert isinstance(result.error, AuthNeeded)
            assert result.error.url in result.text
            assert urlhost(auth.issuer) in result.text
            before = len(changes)
            assert (await browse(result.error.url))[0] == 200
            await until(lambda: tool not in host.catalog.tools)
            assert [t.remote_name for t in host.catalog.tools.values()] == ["echo"]
            await until(lambda: len(changes) > before)
            seen = []
            async with asyncio.timeout(5):
                async for event in stream:
                    seen.append(event)
                    if isinstance(event, events.CatalogChanged):
                        break
            assert tool in seen[-1].removed


def urlhost(url: str) -> str:
    return url.partition("://")[2]


async def test_O1_an_event_says_that_a_login_is_needed(hosting: Any) -> None:
    async with AuthLab() as auth, Host([auth.config()]) as host:
        stream = host.events()
        async with asyncio.timeout(5):
            async for event in stream:
                if isinstance(event, events.LoginNeeded):
                    break
        assert (event.server, event.login) == ("web", True)
        assert "HTTP 401" in event.reason


async def test_calling_authenticate_twice_shows_the_same_login(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        first = await host.call("mcp_web_authenticate")
        second = await host.call("mcp_web_authenticate")
        assert first.error.url == second.error.url
        assert auth.count("/register") == 1


async def test_O3_the_callback_of_the_application_shows_the_login_and_the_call_waits_for_it(
    hosting: Any,
) -> None:
    shown: list[Login] = []

    async def on_auth(login: Login) -> None:
        shown.append(login)
        await browse(login.url)

    async with AuthLab() as auth, hosting(auth.config(), on_auth=on_auth) as host:
        result = await host.call("mcp_web_authenticate")
        assert not result.is_error
        assert "Logged in" in result.text
        assert "mcp_web_echo" in names(host)
        assert "mcp_web_authenticate" not in names(host)
        assert [login.server for login in shown] == ["web"]


async def test_O3_a_login_that_the_application_cancels_is_an_error_that_says_so(hosting: Any) -> None:
    async def on_auth(login: Login) -> None:
        await login.cancel()

    async with AuthLab() as auth, hosting(auth.config(), on_auth=on_auth) as host:
        result = await host.call("mcp_web_authenticate")
        assert result.is_error
        assert "cancelled" in result.text
        assert host.status()[0].state == "needs-auth"


async def test_O3_a_callback_that_fails_costs_the_login_and_nothing_else(hosting: Any) -> None:
    def on_auth(login: Login) -> None:
        raise RuntimeError("no screen")

    async with AuthLab() as auth, hosting(auth.config(), on_auth=on_auth) as host:
        result = await host.call("mcp_web_authenticate")
        assert result.is_error
        assert "could not show" in result.text
        assert (await log_in(host)).over


async def test_the_address_that_the_browser_was_sent_to_can_be_pasted(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        login = await host.login("web")
        _, back = await browse(login.url, follow=False)
        with pytest.raises(AuthNeeded, match="must begin with"):
            await login.complete("https://elsewhere.example/callback?code=1")
        assert not login.over
        await login.complete(f"  {back}\n")
        await login.done(5)
        assert "mcp_web_echo" in names(host)


async def test_a_no_of_the_person_is_reported(hosting: Any) -> None:
    async with AuthLab(denies="access_denied") as auth, hosting(auth.config()) as host:
        login = await host.login("web")
        status, page = await browse(login.url)
        assert status == 400
        assert "access_denied" not in page
        with pytest.raises(AuthNeeded, match="access_denied"):
            await login.done(5)


async def test_a_client_metadata_document_goes_before_a_registration(hosting: Any) -> None:
    document = "https://app.example/mooring.json"
    async with AuthLab(documents=True) as auth:
        async with hosting(auth.config(auth={"client_metadata_url": document})) as host:
            login = await log_in(host)
            assert query_of(login.url)["client_id"] == document
            assert auth.count("/register") == 0
        auth.documents = False
        async with hosting(auth.config("two", auth={"client_metadata_url": document})) as host:
            login = await host.login("two")
            assert query_of(login.url)["client_id"] == "client-1"
            await login.cancel()


async def test_a_client_that_was_registered_beforehand_is_used(hosting: Any) -> None:
    async with AuthLab(registers=False) as auth:
        auth.clients["ours"] = {"client_secret": CLIENT["client_secret"], "redirect_uris": AnyUri()}
        async with hosting(auth.config(auth=CLIENT)) as host:
            login = await log_in(host)
            assert query_of(login.url)["client_id"] == "ours"
            assert auth.count("/token", client_secret=CLIENT["client_secret"]) == 0  # it went by Basic


class AnyUri(list[str]):
    def __contains__(self, _: object) -> bool:
        return True


async def test_without_a_way_to_get_a_client_the_next_step_is_named(hosting: Any) -> None:
    async with AuthLab(registers=False) as auth, hosting(auth.config()) as host:
        with pytest.raises(AuthNeeded, match="client_id"):
            await host.login("web")


async def test_client_credentials_need_no_person(hosting: Any) -> None:
    async with AuthLab() as auth:
        auth.clients["ours"] = {"client_secret": CLIENT["client_secret"]}
        settings = {"type": "client_credentials", **CLIENT, "scopes": ["mcp"]}
        async with hosting(auth.config(auth=settings)) as host:
            assert host.status()[0].state == "connected"
            auth.revoke_all()
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
            auth.needs["echo"] = "admin"
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
            assert auth.count("/token", grant_type="client_credentials", scope="mcp admin") == 1
            with pytest.raises(AuthNeeded, match="no login in a browser"):
                await host.login("web")


async def test_client_credentials_that_are_refused_are_explained(hosting: Any) -> None:
    async with AuthLab() as auth:
        settings = {"type": "client_credentials", **CLIENT}
        async with hosting(auth.config(auth=settings)) as host:
            (status,) = host.status()
            assert status.state == "needs-auth"
            assert "invalid_client" in (status.error or "")
            assert names(host) == {"mcp_web_authenticate"}
            assert "invalid_client" in (await host.call("mcp_web_authenticate")).text


async def test_more_rights_are_asked_for_when_a_call_needs_them(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        await log_in(host)
        auth.needs["echo"] = "files:write"
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert isinstance(result.error, AuthNeeded)
        assert "files:write" in result.text
        assert host.status()[0].state == "connected"
        assert names(host) == {"mcp_web_authenticate", "mcp_web_echo", "mcp_web_sleep"}
        login = await log_in(host)
        assert set(login.scopes) == {"mcp", "files:write"}
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
        await until(lambda: "mcp_web_authenticate" not in host.catalog.tools)
        assert auth.lab.methods().count("server/discover") == 1  # the connection was never given up


async def test_rights_that_the_login_already_has_are_not_asked_for_again(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        await log_in(host)
        for issued in auth.tokens.values():
            issued.scopes.clear()
        auth.needs["echo"] = "mcp"
        assert (await host.call("mcp_web_echo", {"text": "x"})).is_error
        assert "mcp_web_authenticate" not in names(host)


async def test_a_server_with_a_token_in_its_headers_is_not_logged_in_to(hosting: Any) -> None:
    async with AuthLab() as auth:
        async with hosting(auth.config(headers={"Authorization": "Bearer old"})) as host:
            (status,) = host.status()
            assert status.state == "needs-auth"
            assert "`headers`" in (status.error or "")
            assert "not possible" in (await host.call("mcp_web_authenticate")).text
            assert auth.requests == []
        async with hosting(auth.config(auth="none")) as host:
            assert "not possible" in (await host.call("mcp_web_authenticate")).text
            assert auth.requests == []


async def test_a_server_without_oauth_is_distinguished_from_one_with(hosting: Any) -> None:
    async with AuthLab(protected=None, hint=False) as auth, hosting(auth.config()) as host:
        (status,) = host.status()
        assert status.state == "needs-auth"
        assert "no OAuth login" in (status.error or "")
        assert "`headers`" in (status.error or "")
        assert "no OAuth login" in (await host.call("mcp_web_authenticate")).text
        with pytest.raises(AuthNeeded, match="no authorization server"):
            await host.login("web")


@pytest.mark.parametrize("style", ["mcp", "double", "server", "raw"])
async def test_no_tool_of_a_server_passes_for_the_one_that_begins_a_login(hosting: Any, style: str) -> None:
    theirs = ("authenticate", "Authenticate", "authenticate_", "\u0430uthenticate", "mooring/authenticate")
    lab, other = HttpLab(tools=(*theirs, "echo")), HttpLab(tools=theirs)
    async with AuthLab(lab=lab) as auth, other:
        servers = auth.config(), other.config("zzz")  # in style raw the last server wins a name
        async with hosting(*servers, style=style, lock=False) as host:
            await log_in(host)
            ours = assign([("web", LOGIN)], style)["web", LOGIN]
            assert ours.endswith("authenticate")
            own = {tool.remote_name: tool for tool in host.catalog.tools.values() if tool.server == "zzz"}
            assert own.keys() == {*theirs} - {"mooring/authenticate"}
            for tool in host.catalog.tools.values():
                assert not tool.name.lower().strip("_").endswith("authenticate"), tool.name
            result = await host.call(own["authenticate"].name, {"text": "theirs"})
            assert result.text == "theirs"  # it is another name, not another tool

            auth.needs["echo"] = "more"
            echo = next(tool for tool in host.catalog.tools.values() if tool.remote_name == "echo")
            await host.call(echo.name, {"text": "x"})
            assert host.catalog.tools[ours].remote_name == LOGIN
            assert host.catalog.tools[ours].server == "web"
            started = await host.call(ours, {"text": "theirs"})
            assert started.error is not None
            assert "requires a login at" in started.text


async def test_a_name_that_comes_to_that_of_another_servers_login_takes_it_from_no_server(
    hosting: Any,
) -> None:
    async with AuthLab() as auth, HttpLab(tools=("b_authenticate",)) as other:
        async with hosting(auth.config("a_b"), other.config("a"), lock=False) as host:
            found = {(tool.server, tool.remote_name): tool.name for tool in host.catalog.tools.values()}
    assert found.keys() == {("a_b", LOGIN), ("a", "b_authenticate")}
    assert "mcp_a_b_authenticate" not in found.values()


async def test_after_logout_the_login_is_gone_here_and_there(hosting: Any) -> None:
    async with AuthLab() as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
            assert await host.logout("web") is True
            assert (auth.tokens, auth.refresh) == ({}, {})
            await until(lambda: host.status()[0].state == "needs-auth")
            assert await host.logout("web") is None
        async with hosting(auth.config()) as host:
            assert host.status()[0].state == "needs-auth"


async def test_where_nothing_can_be_revoked_logout_forgets_all_the_same(hosting: Any) -> None:
    async with AuthLab(revokes=False) as auth, hosting(auth.config()) as host:
        await log_in(host)
        assert await host.logout("web") is None
        await until(lambda: host.status()[0].state == "needs-auth")


async def test_the_same_verbs_work_without_await() -> None:
    async with AuthLab() as auth:

        def work() -> set[str]:
            with SyncHost([auth.config()]) as host:
                host.ready(10)
                login = host.login("web")
                asyncio.run(browse(login.url))
                login.done(10)
                found = set(host.catalog.tools)
                assert host.logout("web") is True
                other = host.login("web")
                other.cancel()
                with pytest.raises(AuthNeeded, match="cancelled"):
                    other.done(5)
                return found

        assert "mcp_web_echo" in await asyncio.to_thread(work)


async def test_a_login_that_is_left_open_ends_with_the_host(hosting: Any, leaves_nothing: None) -> None:
    async with AuthLab() as auth:
        async with hosting(auth.config()) as host:
            login = await host.login("web")
        assert login.over


async def test_logins_that_begin_together_are_one(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        begun = await asyncio.gather(*(host.login("web") for _ in range(5)))
        assert len({login.url for login in begun}) == 1
        assert auth.count("/register") == 1


async def test_a_login_under_way_gives_way_to_one_that_asks_for_more(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        await log_in(host)
        auth.needs |= {"echo": "read", "sleep": "write"}
        await host.call("mcp_web_echo", {"text": "x"})
        first = await host.login("web")
        await host.call("mcp_web_sleep", {"seconds": 0})
        second = await host.login("web")
        assert first.over
        assert "write" in second.scopes


# --- servers of 2025-03-26 without metadata


@pytest.mark.parametrize("status", [0, 200, 302, 400, 422, 500])
async def test_a_server_without_metadata_is_logged_in_to_at_its_default_endpoints(
    status: int, hosting: Any
) -> None:
    async with AuthLab(
        bare=True, bare_status=status, protected=None, hint=False, names_itself=False, iss=""
    ) as auth:
        async with hosting(auth.config()) as host:
            assert host.status()[0].state == "needs-auth"
            assert "mooring login web" in (host.status()[0].error or "")
            login = await host.login("web")
            assert login.url.startswith(f"{auth.lab.origin}/authorize?")
            assert query_of(login.url)["code_challenge_method"] == "S256"
            assert login.issuer == auth.lab.origin
            assert (await browse(login.url))[0] == 200
            await login.done(20)
            assert (await host.call("mcp_web_echo", {"text": "in"})).text == "in"
            assert auth.clients
        async with hosting(auth.config()) as host:
            assert (await host.call("mcp_web_echo", {"text": "kept"})).text == "kept"


# --- logins that do not help


class Worthless(dict[str, Any]):
    """Tokens that the server takes back at once."""

    def get(self, *_: Any) -> None:
        return None


async def test_after_a_login_that_does_not_help_the_state_and_the_text_are_those_of_before(
    hosting: Any,
) -> None:
    async def on_auth(login: Login) -> None:
        assert (await browse(login.url))[0] == 200

    async with AuthLab(gives_refresh=False) as auth, hosting(auth.config(), on_auth=on_auth) as host:
        auth.tokens = Worthless()
        (before,) = host.status()
        stream = host.events(events.StateChanged, events.CatalogChanged)
        for _ in range(2):
            result = await host.call("mcp_web_authenticate")
            assert result.is_error
            (status,) = host.status()
            assert (status.state, status.error) == ("needs-auth", before.error)
            assert result.text.count("it requires a login") == 1
            assert "mcp_web_authenticate" in names(host)
        await host.refresh()
        assert host.status()[0].error == before.error
        stream.end()
        seen = [event async for event in stream]
        assert [e for e in seen if isinstance(e, events.CatalogChanged)] == []
        states = [e.new for e in seen if isinstance(e, events.StateChanged)]
        assert states == ["pending", "needs-auth"] * 3  # one attempt each


async def test_a_login_that_is_refused_changes_no_state(hosting: Any) -> None:
    async with AuthLab(denies="access_denied") as auth, hosting(auth.config()) as host:
        stream = host.events(events.StateChanged)
        login = await host.login("web")
        status, page = await browse(login.url)
        assert status == 400
        assert page.count("Login failed. Return to your application for details.") == 1
        with pytest.raises(AuthNeeded) as refused:
            await login.done(20)
        assert str(refused.value) == "'web' is not logged in: the authorization server refused: access_denied"
        stream.end()
        assert [event async for event in stream] == []


async def test_the_page_after_a_login_says_where_to_go(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        login = await host.login("web")
        status, page = await browse(login.url)
        assert status == 200
        assert "Login complete. You can close this window and return to your application." in page


# --- advice


@pytest.mark.parametrize("priority", [None, 0], ids=["not installed", "no backend"])
async def test_a_keyring_is_not_advised_where_it_would_not_work(
    priority: int | None, hosting: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import sys
    from types import ModuleType, SimpleNamespace

    module: Any = None
    if priority is not None:
        module = ModuleType("keyring")
        module.get_keyring = lambda: SimpleNamespace(priority=priority)
    monkeypatch.setitem(sys.modules, "keyring", module)
    monkeypatch.setattr("mooring.auth.token_store._warned", set())
    caplog.set_level("INFO", "mooring")
    async with AuthLab() as auth, hosting(auth.config()) as host:
        await log_in(host)
    assert "tokens are stored in a file that only you can read" in caplog.text
    assert "keyring" not in caplog.text


async def test_the_warning_about_a_missing_login_says_everything_once(
    hosting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with AuthLab() as auth, hosting(auth.config("antique"), ready=False) as host:
        await host.ready(10)
        [warned] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == (
        "server 'antique' is not available: it requires a login (HTTP 401); log in: `mooring login antique`"
    )
