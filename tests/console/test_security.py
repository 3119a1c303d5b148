"""Attacks on the console: each rule of docs/console.md, tried by a client that does not follow it."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import anyio
import pytest

from mooring.config.files import state_home
from mooring.console.access import MOST_GUESSES, TICKET_LIFE, Access
from mooring.gateway.tokens import TokenFile
from tests.lab.stdio import lab_server

pytestmark = pytest.mark.anyio

READS = ("session", "state", "events", "view?view=x")


async def status_of(page: Any, path: str, method: str = "GET", **more: Any) -> int:
    async with page.http.request(method, page.origin + path, allow_redirects=False, **more) as answer:
        return answer.status


def token_file() -> TokenFile:
    return TokenFile(state_home() / "gateway-tokens.json")


async def test_nothing_is_shown_without_a_login(opened: Any) -> None:
    async with opened(lab_server(), login=False) as page:
        for name in READS:
            assert await status_of(page, f"/console/api/{name}") == 401, name
        for verb in page.console.routes._verbs:
            status, said = await page.post(verb, {})
            assert (status, "error" in said) == (401, True), verb
        assert await status_of(page, "/console/") == 403
        assert page.http.cookie_jar.filter_cookies(page.origin) == {}


async def test_the_token_of_the_address_works_once(opened: Any) -> None:
    async with opened(lab_server(), login=False) as page:
        ticket = page.console.access.ticket()
        assert await status_of(page, f"/console/?token={ticket}") == 303
        page.http.cookie_jar.clear()
        async with page.http.get(f"{page.address}?token={ticket}") as answer:
            assert answer.status == 403
            text = await answer.text()
            assert "Press Enter in the terminal" in text
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        for guess in ("", "x", "a" * 43, "\udcff", ticket[:-1]):
            assert await status_of(page, "/console/", params={"token": guess}) == 403


def test_the_token_of_the_address_is_valid_for_ten_minutes() -> None:
    now = [0.0]
    access = Access("c", clock=lambda: now[0])
    old, young = access.ticket(), access.ticket()
    now[0] = TICKET_LIFE
    assert access.redeem(young) is not None
    now[0] += 0.1
    assert access.redeem(old) is None


async def test_the_cookie_cannot_be_read_by_scripts_or_sent_by_other_sites(opened: Any) -> None:
    async with opened(lab_server(), login=False) as page:
        ticket = page.console.access.ticket()
        async with page.http.get(f"{page.address}?token={ticket}", allow_redirects=False) as answer:
            cookie = answer.headers["Set-Cookie"]
        port = page.origin.rpartition(":")[2]
        assert cookie.startswith(f"mooring_console_{port}=")
        for rule in ("HttpOnly", "SameSite=Strict", "Path=/console", "Max-Age=43200"):
            assert rule in cookie
        assert ticket not in cookie


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.nip.io", "", "localhost.evil.example", "10.0.0.1"]
)
async def test_a_rebound_name_reaches_nothing(opened: Any, host: str) -> None:
    async with opened(lab_server()) as page:
        for path in ("/console/", "/console/index.html", *(f"/console/api/{name}" for name in READS)):
            assert await status_of(page, path, headers={"Host": host}) == 403, path
        assert (await page.post("reconnect", {"server": "lab"}, Host=host))[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
async def test_requests_of_other_origins_are_refused_although_the_cookie_is_sent(
    opened: Any, headers: dict[str, str]
) -> None:
    async with opened(lab_server()) as page:
        for name in READS:
            assert await status_of(page, f"/console/api/{name}", headers=headers) == 403, name
        status, _ = await page.post("call", {"tool": "mcp_lab_pid", "arguments": {}}, **headers)
        assert status == 403
        assert page.console.journal.rows("tries") == []


async def test_a_link_of_another_site_may_lead_to_the_page_but_not_do_anything(opened: Any) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with opened(lab_server()) as page:
        assert await status_of(page, "/console/", headers=link) == 200
        assert (await page.post("call", {"tool": "mcp_lab_pid"}, **link))[0] == 403


@pytest.mark.parametrize("csrf", ["", "x", "é", None])
async def test_a_post_needs_the_header_of_the_page(opened: Any, csrf: str | None) -> None:
    async with opened(lab_server()) as page:
        body, kind = json.dumps({"tool": "mcp_lab_pid"}), {"Content-Type": "application/json"}
        headers = kind if csrf is None else {**kind, "X-Mooring-CSRF": csrf}
        assert await status_of(page, "/console/api/call", "POST", data=body, headers=headers) == 403
        assert page.console.journal.rows("tries") == []


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"],
)
async def test_a_post_must_be_json_which_no_form_can_send(opened: Any, kind: str) -> None:
    async with opened(lab_server()) as page:
        status, _ = await page.post("call", {"tool": "mcp_lab_pid"}, **{"Content-Type": kind})
        assert status == 415
        assert page.console.journal.rows("tries") == []


@pytest.mark.parametrize("data", [b"[]", b"1", b"{", b"\xff", b'{"a":' * 5_000, b"null"])
async def test_a_body_that_is_no_object_is_refused(opened: Any, data: bytes) -> None:
    async with opened(lab_server()) as page:
        headers = {"X-Mooring-CSRF": page.csrf, "Content-Type": "application/json"}
        assert await status_of(page, "/console/api/call", "POST", data=data, headers=headers) == 400
        large = io.BytesIO(b'{"tool": "' + b"x" * 2**20 + b'"}')
        assert await status_of(page, "/console/api/call", "POST", data=large, headers=headers) == 413


async def test_every_answer_has_the_headers_that_browsers_enforce(opened: Any) -> None:
    async with opened(lab_server()) as page:
        for path in ("/console/", "/console/api/state", "/console/api/session", "/console/nothing.js"):
            async with page.http.get(page.origin + path) as answer:
                headers = answer.headers
                assert headers["X-Content-Type-Options"] == "nosniff", path
                assert headers["X-Frame-Options"] == "DENY"
                assert headers["Cache-Control"] == "no-store"
                assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
                assert "Access-Control-Allow-Origin" not in headers
                if "state" not in path:
                    policy = headers["Content-Security-Policy"]
                    assert "default-src 'none'" in policy
                    assert "frame-ancestors 'none'" in policy
                    assert "unsafe" not in policy
        async with page.http.get(page.origin + "/console/") as answer:
            text = await answer.text()
            assert "<script>" not in text
            assert "//" not in text.replace("http://www.w3.org", ""), "nothing comes from elsewhere"


@pytest.mark.parametrize(
    "name",
    [
        "../web.py",
        "..%2fweb.py",
        "%2e%2e/access.py",
        "static/../../web.py",
        ".hidden",
        "a/b/c/d/e.js",
        "x.py",
    ],
)
async def test_no_other_file_is_served(opened: Any, name: str) -> None:
    async with opened(lab_server()) as page:
        from yarl import URL

        url = URL(f"{page.address}{name}", encoded=True)
        async with page.http.get(url, allow_redirects=False) as answer:
            assert answer.status == 404
            assert b"def " not in await answer.read()


async def test_secrets_of_servers_are_shown_nowhere(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "s3cr3t-Zf8kQp2Lw9xT"
    monkeypatch.setenv("LAB_TOKEN", secret)
    settings = {"env": {"LAB_TOKEN": "${LAB_TOKEN}", "API_KEY": "literal-" + secret}}
    server = lab_server("lab", settings=settings, tools=["env", "echo", "raw", "fail"])
    async with opened(server) as page:
        await page.until(lambda state: state["values"]["totals"]["connected"] == 1)
        made = await page.do("call", tool="mcp_lab_env", arguments={})
        key = made["id"]
        await page.until(
            lambda state: next(r for r in state["tables"]["tries"] if r["id"] == key)["state"] == "ok"
        )
        await page.do("call", tool="mcp_lab_echo", arguments={"text": secret, "password": "hunter2hunter2"})
        await page.until(lambda state: all(r["state"] != "running" for r in state["tables"]["tries"]))
        found = [
            await page.get("state"),
            await page.do("result", id=key),
            await page.do("server", server="lab"),
        ]
        found += [await page.do("settings"), await page.do("export", calls="all")]
        found += [await page.do("wire", id=row["id"]) for row in page.state["tables"]["wire"]]
        for one in found:
            assert secret not in json.dumps(one)
        assert "hunter2hunter2" not in json.dumps(found[0]["tables"]["wire"]) + json.dumps(found[4:])
        assert len(page.state["tables"]["wire"]) > 4


async def test_a_gateway_with_tokens_needs_one_with_the_scope(opened: Any) -> None:
    admin, plain = (
        token_file().create("root", scopes=["admin"])[0],
        token_file().create("ana", scopes=["read"])[0],
    )
    async with opened(lab_server(), gateway=True, login=False) as page:
        assert page.console.access.redeem(page.console.access.ticket()) is None, "a local token is not enough"
        for token, expected in ((None, 401), (plain, 401), ("x" * 60, 401), (admin, 200)):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            assert await status_of(page, "/console/api/state", headers=headers) == expected
        bearer = {"Authorization": f"Bearer {admin}", "Content-Type": "application/json"}
        body = json.dumps({"server": "lab"})
        assert await status_of(page, "/console/api/reconnect", "POST", data=body, headers=bearer) == 200
        async with page.http.get(page.address) as answer:
            assert (answer.status, "scope <code>admin</code>" in await answer.text()) == (200, True)
        own = {"Origin": page.origin}
        login = f"{page.address}login"
        for token, origin, expected in (
            (plain, own, 403),
            (admin, {}, 403),
            (admin, {"Origin": "null"}, 403),
        ):
            async with page.http.post(login, data={"token": token}, headers=origin) as answer:
                assert answer.status == expected
        async with page.http.post(login, data={"token": admin}, headers=own, allow_redirects=False) as answer:
            assert (answer.status, "SameSite=Strict" in answer.headers["Set-Cookie"]) == (303, True)
        session = await page.get("session")
        assert session["principal"] == "token:root"
        page.csrf = session["csrf"]
        status, said = await page.post(
            "edit", {"edits": [{"op": "server-add", "name": "x", "entry": {"command": "sh"}}]}
        )
        assert (status, "could start programs" in said["error"]["message"]) == (403, True)


async def test_a_revoked_token_ends_the_cookie_and_the_stream(opened: Any) -> None:
    admin = token_file().create("root", scopes=["admin"])[0]
    token_file().create("other", scopes=["admin"])
    async with opened(lab_server(), gateway=True, login=False) as page:
        own = {"Origin": page.origin}
        async with page.http.post(f"{page.address}login", data={"token": admin}, headers=own) as answer:
            assert answer.status == 200
        page.csrf = (await page.get("session"))["csrf"]
        ended = anyio.Event()

        async def follow() -> None:
            async for _ in page.events():
                pass
            ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await page.until(lambda state: state["values"]["totals"]["connected"] == 1)
            await page.do("token-revoke", name="root")
            with anyio.fail_after(40):
                while await status_of(page, "/console/api/session") != 401:
                    page.console.state.add_log("tick", "info", 0.0)
                    await anyio.sleep(0.2)
                while not ended.is_set():
                    page.console.state.add_log("tick", "info", 0.0)
                    await anyio.sleep(0.2)


async def test_guessing_tokens_is_slow(opened: Any) -> None:
    admin = token_file().create("root", scopes=["admin"])[0]
    async with opened(lab_server(), gateway=True, login=False) as page:
        statuses: list[int] = []
        for token in ["wrong"] * (MOST_GUESSES + 1) + [admin]:
            async with page.http.post(
                f"{page.address}login", data={"token": token}, headers={"Origin": page.origin}
            ) as answer:
                statuses.append(answer.status)
        assert statuses == [403] * MOST_GUESSES + [429, 429]


async def test_a_gateway_without_console_has_no_such_path(serving: Any) -> None:
    async with serving(lab_server()) as here:
        for path in ("/console", "/console/", "/console/api/state"):
            async with here.http.get(here.base + path) as answer:
                assert answer.status == 404


async def test_logging_out_ends_the_cookie(opened: Any) -> None:
    async with opened(lab_server()) as page:
        await page.do("logout-console")
        assert await status_of(page, "/console/api/session") == 401


async def test_a_repeated_header_cannot_smuggle_a_second_host(opened: Any) -> None:
    async with opened(lab_server()) as page:
        cookie = "; ".join(f"{one.key}={one.value}" for one in page.http.cookie_jar)
        port = int(page.origin.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET /console/api/session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n"
        for more, expected in (
            ("", b"200"),
            ("Host: evil.example\r\n", b"400"),
            ("Origin: a\r\nOrigin: b\r\n", b"400"),
        ):
            writer.write(f"{head}{more}\r\n".encode())
            line = await reader.readline()
            assert line.split()[1] == expected, more
            if expected == b"200":
                length = 0
                while (header := await reader.readline()) != b"\r\n":
                    if header.lower().startswith(b"content-length"):
                        length = int(header.split(b":")[1])
                await reader.readexactly(length)
            else:
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
