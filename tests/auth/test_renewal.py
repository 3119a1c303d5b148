"""Tokens over time: stored between runs, refreshed once for all callers, and dropped when they are
rejected."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mooring import AuthNeeded, Host
from tests.auth.conftest import kept_file
from tests.auth.test_login import log_in
from tests.lab.http import HttpLab
from tests.lab.oauth import AuthLab
from tests.lab.wait import until

Change = Callable[[], None]


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("rotates", [True, False])
async def test_O5_a_restart_with_a_token_that_has_run_out_is_silent(
    era: str, rotates: bool, hosting: Any, run_out: Change, kept: Any
) -> None:
    async with AuthLab(lab=HttpLab(era=era), rotates=rotates) as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
        for _ in range(2):
            run_out()
            auth.revoke_all()
            async with hosting(auth.config()) as host:
                assert host.status()[0].state == "connected"
                assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
        assert auth.refreshes() == 2
        assert auth.count("/authorize") == auth.count("/register") == 1
        assert kept()["secrets"]["refresh"] in auth.refresh
        assert kept()["expires_at"] > time.time() + 3000


async def test_a_login_in_another_process_is_seen_by_a_host_that_runs(hosting: Any) -> None:
    async with AuthLab() as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
        auth.revoke_all()
        auth.refresh.clear()
        async with hosting(auth.config()) as running:
            assert running.status()[0].state == "needs-auth"
            assert (await running.call("mcp_web_echo", {"text": "x"})).is_error
            asked = len(auth.seen_tokens)
            assert (await running.call("mcp_web_echo", {"text": "x"})).is_error
            assert len(auth.seen_tokens) == asked
            async with hosting(auth.config()) as other:
                await log_in(other)
            assert (await running.call("mcp_web_echo", {"text": "x"})).text == "x"


async def test_a_token_that_is_good_is_used_without_any_question(hosting: Any) -> None:
    async with AuthLab() as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
        asked = len(auth.requests)
        async with hosting(auth.config()) as host:
            assert host.status()[0].state == "connected"
        assert len(auth.requests) == asked
        assert None not in auth.seen_tokens[-2:]


async def test_a_token_is_renewed_before_it_runs_out(hosting: Any, kept: Any) -> None:
    async with AuthLab(life=2) as auth, hosting(auth.config()) as host:
        await log_in(host)
        first = kept()["secrets"]["access"]
        await until(lambda: time.time() > kept()["renew_at"])
        auth.life = 3600
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
        assert auth.refreshes() == 1
        assert kept()["secrets"]["access"] != first


async def test_FA51_a_hundred_calls_into_a_revoked_token_make_one_refresh(hosting: Any) -> None:
    async with AuthLab(token_delay=0.05) as auth, hosting(auth.config()) as host:
        await log_in(host)
        auth.revoke_all()
        results = await asyncio.gather(*(host.call("mcp_web_echo", {"text": str(n)}) for n in range(100)))
        assert [result.text for result in results] == [str(n) for n in range(100)]
        assert auth.refreshes() == 1


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_revoked_login_that_cannot_be_renewed_is_needs_auth(era: str, hosting: Any) -> None:
    async with AuthLab(lab=HttpLab(era=era)) as auth, hosting(auth.config()) as host:
        await log_in(host)
        auth.revoke_all()
        auth.refresh.clear()
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert isinstance(result.error, AuthNeeded)
        await until(lambda: host.status()[0].state == "needs-auth")
        assert "mcp_web_authenticate" in host.catalog.tools
        assert "mcp_web_echo" in host.catalog.tools
        await log_in(host)
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"


async def test_a_listing_that_is_refused_shows_that_the_login_is_gone(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        await log_in(host)
        auth.revoke_all()
        auth.refresh.clear()
        report = await host.refresh("web")
        assert not report["web"].ok
        assert "requires a login" in (report["web"].error or "")
        await until(lambda: host.status()[0].state == "needs-auth")


async def test_a_server_that_refuses_every_token_is_not_asked_for_ever(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        await log_in(host)
        auth.life = -1
        auth.revoke_all()
        assert (await host.call("mcp_web_echo", {"text": "x"})).is_error
        await until(lambda: host.status()[0].state == "needs-auth")
        asked = auth.refreshes()
        assert asked <= 3
        await host.call("mcp_web_echo", {"text": "x"})
        assert auth.refreshes() == asked


async def test_an_authorization_server_that_is_down_costs_no_login(
    hosting: Any, run_out: Change, kept: Any
) -> None:
    async with AuthLab() as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
        run_out()
        auth.redirects["/token"] = ""  # answered, and not with a token
        file = kept_file()
        document = file.read_text()
        nowhere = document.replace(auth.issuer, "http://127.0.0.1:9")
        file.write_text(nowhere)
        async with hosting(auth.config()) as host:
            (status,) = host.status()
            assert status.state == "failed"
            assert "cannot be renewed now" in (status.error or "")
            assert status.retry_in is not None
        assert kept()["secrets"]["refresh"] in auth.refresh


async def test_sixteen_calls_run_side_by_side_through_a_login(hosting: Any) -> None:
    async with AuthLab(lab=HttpLab(era="modern")) as auth, hosting(auth.config()) as host:
        await log_in(host)
        took: list[float] = []
        while not took or (min(took) >= 0.6 and len(took) < 5):  # one after the other they take 4.8 s
            started = time.monotonic()
            results = await asyncio.gather(*(host.call("mcp_web_sleep", {"seconds": 0.3}) for _ in range(16)))
            took.append(time.monotonic() - started)
            assert not any(result.is_error for result in results)
        assert min(took) < 0.6


CHILD = """
import asyncio, sys
from mooring import Host, ServerConfig

async def main():
    async with Host([ServerConfig(name="web", url=sys.argv[1])]) as host:
        await host.ready(20)
        print(host.status()[0].state, "mcp" in sys.modules)

asyncio.run(main())
"""


async def test_two_processes_that_renew_at_once_ask_once(hosting: Any, run_out: Change) -> None:
    async with AuthLab(token_delay=0.5) as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
        run_out()
        auth.revoke_all()
        children = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", CHILD, auth.lab.url, stdout=subprocess.PIPE
            )
            for _ in range(2)
        ]
        async with asyncio.timeout(30):
            said = [(await child.communicate())[0].decode().strip() for child in children]
        assert said == ["connected False", "connected False"]  # and the SDK was not even imported
        assert auth.refreshes() == 1


# --- where tokens are kept ----------------------------------------------------------------------


async def test_TH21_the_file_is_for_its_owner_alone(hosting: Any, caplog: Any) -> None:
    from mooring.auth import token_store

    token_store._warned.clear()  # pyright: ignore[reportPrivateUsage]
    async with AuthLab() as auth:
        with caplog.at_level(logging.INFO):
            async with hosting(auth.config("one"), auth.config("two", url=auth.lab.url + "?two")) as host:
                await log_in(host, "one")
                auth.protected = {"resource": auth.lab.url}
                await log_in(host, "two")
        files = list((Path(os.environ["MOORING_HOME"]) / "oauth").glob("*.json"))
        assert len(files) == 2
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700
    warned = [record for record in caplog.records if "stored in a file" in record.getMessage()]
    assert len(warned) == 1


@pytest.mark.parametrize("trick", ["link", "readable", "folder"])
async def test_TH21_a_file_that_others_could_have_made_is_refused(
    trick: str, hosting: Any, tmp_path: Path
) -> None:
    async with AuthLab() as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
        file = kept_file()
        if trick == "link":
            file.rename(tmp_path / "elsewhere")
            file.symlink_to(tmp_path / "elsewhere")
        elif trick == "readable":
            file.chmod(0o644)
        else:
            file.parent.rename(tmp_path / "folder")
            file.parent.symlink_to(tmp_path / "folder")
        before = len(auth.seen_tokens)
        async with hosting(auth.config()) as host:
            (status,) = host.status()
            assert status.state == "failed"
            assert "not safe" in (status.error or "")
            assert "remove it" in (status.error or "")
        assert auth.seen_tokens[before:] == []


def test_TH21_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mooring.auth.token_store import TokenStore, UnsafeStoreError

    folder = tmp_path / "home" / "mooring" / "oauth"
    folder.mkdir(parents=True, mode=0o700)
    # There is no second user here: to the store we are one.
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UnsafeStoreError, match="another user"):
        TokenStore("https://x.example/mcp", None).load()


async def test_FA78_where_nothing_can_be_written_the_login_lives_as_long_as_the_host(
    hosting: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: Any
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("MOORING_HOME", str(blocked))
    async with AuthLab() as auth, hosting(auth.config(), lock=False) as host:
        await log_in(host)
        auth.revoke_all()
        assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"


async def test_a_kept_login_that_is_damaged_is_as_none(hosting: Any, caplog: Any) -> None:
    async with AuthLab() as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
        for damage in ("", "{", "[]", '{"version": 1}', "[" * 100_000):
            kept_file().write_text(damage)
            async with hosting(auth.config()) as host:
                assert host.status()[0].state == "needs-auth"
        assert "damaged" in caplog.text


KEYRING = """
import json, os, pathlib
class Backend:
    priority = 5
def get_keyring(): return Backend()
RING = pathlib.Path(os.environ["FAKE_KEYRING"])
def _all(): return json.loads(RING.read_text()) if RING.exists() else {}
def _write(all_): RING.write_text(json.dumps(all_))
def get_password(service, name): return _all().get(service + "/" + name)
def set_password(service, name, text): _write({**_all(), service + "/" + name: text})
def delete_password(service, name):
    kept = _all(); del kept[service + "/" + name]; _write(kept)
"""


async def test_a_keyring_holds_the_secrets_where_there_is_one(
    hosting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Any
) -> None:
    ring = tmp_path / "ring.json"
    monkeypatch.setenv("FAKE_KEYRING", str(ring))
    module = ModuleType("keyring")
    exec(KEYRING, module.__dict__)
    monkeypatch.setitem(sys.modules, "keyring", module)
    async with AuthLab() as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
        (token,) = auth.tokens
        assert token in ring.read_text()
        assert token not in kept_file().read_text()
        async with hosting(auth.config()) as host:
            assert host.status()[0].state == "connected"
            assert await host.logout("web") is True
        assert ring.read_text() == "{}"


async def test_TH15_a_token_is_for_one_address_and_never_goes_elsewhere(hosting: Any) -> None:
    from aiohttp import web

    async with HttpLab() as other, AuthLab() as auth, hosting(auth.config()) as host:
        await log_in(host)

        async def moved(request: web.Request, message: dict[str, Any]) -> web.Response:
            return web.Response(status=307, headers={"Location": other.url})

        auth.lab.faults["tools/call"] = moved
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert "another origin" in result.text
        assert other.seen == []


async def test_a_login_of_another_issuer_than_the_configured_one_is_not_used(hosting: Any) -> None:
    async with AuthLab() as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
        server = auth.config(auth={"issuer": "http://127.0.0.1:1/"})
        async with hosting(server) as host:
            (status,) = host.status()
            assert status.state == "needs-auth"
            assert "configured issuer" in (status.error or "")
            assert "configured issuer" in (await host.call("mcp_web_authenticate")).text


@pytest.mark.parametrize("copied", [False, True], ids=["new login", "login of an older version"])
async def test_a_configured_client_secret_is_not_stored_and_still_renews_the_login(
    copied: bool, hosting: Any, run_out: Change, kept: Any
) -> None:
    secret = "planted-client-secret"
    async with AuthLab(registers=False) as auth:
        auth.clients["ours"] = {"client_secret": secret, "redirect_uris": _Any()}
        config = auth.config(auth={"client_id": "ours", "client_secret": secret})
        async with hosting(config) as host:
            await log_in(host)
        assert secret not in json.dumps(kept())
        if copied:
            document = kept()
            document["secrets"]["client_secret"] = "the-secret-of-last-year"
            kept_file().write_text(json.dumps(document))
        run_out()
        auth.revoke_all()
        async with hosting(config) as host:
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
        assert auth.refreshes() == 1
        stored = json.dumps(kept())
        assert secret not in stored
        assert "last-year" not in stored


async def test_TH19_no_secret_of_a_login_is_ever_shown(hosting: Any, caplog: Any, run_out: Change) -> None:
    from aiohttp import web

    shown: list[str] = []
    secret = "planted-client-secret"
    with caplog.at_level(logging.DEBUG):
        async with AuthLab(registers=False) as auth:
            auth.clients["ours"] = {"client_secret": secret, "redirect_uris": _Any()}
            config = auth.config(auth={"client_id": "ours", "client_secret": secret})
            async with Host([config]) as host:
                stream = host.events()
                await host.ready(10)
                login = await log_in(host)
                (token,) = auth.tokens
                (refresh,) = auth.refresh
                code = next(body["code"] for path, body in auth.requests if path == "/token")

                async def echoes(request: web.Request, message: dict[str, Any]) -> web.Response:
                    return web.Response(status=400, text=f"bad {request.headers['Authorization']}")

                auth.lab.faults["tools/call"] = echoes
                shown.append((await host.call("mcp_web_echo", {"text": "x"})).text)
                access = host._servers.connections["web"].supervisor.access  # pyright: ignore[reportPrivateUsage]
                assert access is not None
                shown += [repr(login), repr(access.grant), repr(access.auth), repr(config), repr(access)]
                auth.revoke_all()
                auth.refresh.clear()
                shown.append((await host.call("mcp_web_sleep", {"seconds": 0})).text)
                await until(lambda: host.status()[0].state == "needs-auth")
                shown.append(repr(host.status()))
            async for event in stream:
                shown.append(repr(event))
    everything = "\n".join([*shown, caplog.text])
    assert "bad Bearer ***" in everything
    verifier = login._verifier  # pyright: ignore[reportPrivateUsage]
    assert [s for s in (secret, token, refresh, code, verifier) if s in everything] == []


class _Any(list[str]):
    def __contains__(self, _: object) -> bool:
        return True


async def test_a_caller_that_goes_away_in_mid_refresh_does_not_cost_the_login(
    hosting: Any, kept: Any, run_out: Change
) -> None:
    async with AuthLab(token_delay=0.3) as auth:
        async with hosting(auth.config()) as host:
            await log_in(host)
            auth.revoke_all()
            result = await host.call("mcp_web_echo", {"text": "x"}, timeout=0.1)
            assert result.is_error
            await until(lambda: kept()["secrets"]["access"] in auth.tokens)
            assert kept()["secrets"]["refresh"] in auth.refresh
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
            assert auth.refreshes() == 1
            auth.revoke_all()
            await host.call("mcp_web_echo", {"text": "x"}, timeout=0.1)
        # The host was closed while it renewed: what was given is kept all the same.
        assert kept()["secrets"]["refresh"] in auth.refresh
