"""The local page that receives the redirect of the browser: it accepts one redirect, once."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest

from mooring import AuthNeeded, Login
from mooring.auth import login as logins
from tests.lab.oauth import AuthLab, browse, query_of


async def ask(login: Login, target: str, *, host: str | None = None, method: str = "GET") -> tuple[int, str]:
    """What the page answers to a raw request."""
    where = urlsplit(query_of(login.url)["redirect_uri"])
    assert where.hostname == "127.0.0.1"
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    named = where.netloc if host is None else host
    lines = [f"{method} {target} HTTP/1.1", *([f"Host: {named}"] if named else []), "", ""]
    writer.write("\r\n".join(lines).encode())
    answer = (await reader.read(65536)).decode()
    writer.close()
    return int(answer.split()[1]), answer


async def test_TH13_a_wrong_answer_is_refused_and_the_right_one_is_waited_for(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        login = await host.login("web")
        state = query_of(login.url)["state"]
        good = f"/callback?code=c&state={state}"
        assert len(state) >= 43  # 256 bits; 128 are asked for
        for target in (
            "/callback",
            "/callback?code=c&state=wrong",
            f"/callback?code=c&state={state[:-1]}",
            f"/callback?code=c&state={state}&state={state}",
        ):
            status, page = await ask(login, target)
            assert status == 400
            assert "wrong" not in page
        assert (await ask(login, f"/other?code=c&state={state}"))[0] == 404
        assert (await ask(login, f"/callback/?code=c&state={state}"))[0] == 404
        assert (await ask(login, good, method="POST"))[0] == 404
        for name in ("evil.example", "localhost", "127.0.0.1", "127.0.0.1:1", ""):
            assert (await ask(login, good, host=name))[0] == 400
        assert not login.over
        assert auth.count("/token") == 0
        assert (await browse(login.url))[0] == 200
        await login.done(5)


async def test_TH13_an_answer_counts_once_and_the_port_is_free_afterwards(hosting: Any) -> None:
    async with AuthLab(token_delay=0.1) as auth, hosting(auth.config()) as host:
        login = await host.login("web")
        _, back = await browse(login.url, follow=False)
        target = back.partition("/callback")[2]
        first, second = await asyncio.gather(
            ask(login, f"/callback{target}"), ask(login, f"/callback{target}")
        )
        assert {first[0], second[0]} == {200, 400}
        await login.done(5)
        assert auth.count("/token") == 1
        await login.close()
        with pytest.raises(OSError, match="Connect call failed"):
            await ask(login, "/callback")


async def test_TH13_nothing_of_the_request_is_said_back(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config()) as host:
        login = await host.login("web")
        state = query_of(login.url)["state"]
        for target in ("/callback?state=<script>", "/<script>", f"/callback?state={state}&error=<script>"):
            _, page = await ask(login, target)
            assert "script" not in page.partition("\r\n\r\n")[2]
            assert "Content-Security-Policy: default-src 'none'" in page
            assert "no-store" in page


async def test_TH13_two_logins_share_neither_state_nor_port_nor_verifier(hosting: Any) -> None:
    async with AuthLab() as auth, hosting(auth.config("a"), auth.config("b")) as host:
        one, two = query_of((await host.login("a")).url), query_of((await host.login("b")).url)
        assert all(one[name] != two[name] for name in ("state", "redirect_uri", "code_challenge"))


async def test_TH13_a_login_that_is_not_finished_ends_by_itself(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "LIFE", 0.1)
    async with AuthLab() as auth, hosting(auth.config()) as host:
        login = await host.login("web")
        with pytest.raises(AuthNeeded, match="no login within"):
            await login.done(5)
        again = await host.login("web")
        assert again.url != login.url


async def test_a_port_that_is_taken_is_named(hosting: Any) -> None:
    async with AuthLab() as auth:
        async with hosting(auth.config(auth={"callback_port": auth.lab.port})) as host:
            with pytest.raises(AuthNeeded, match="no port"):
                await host.login("web")
