"""The admin API and the commands that talk to a running gateway."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from dirty_equals import IsPartialDict, IsStr

from mooring.config.files import state_home
from mooring.config.logs import logger
from mooring.config.operation import LogSettings
from mooring.gateway.admin import ROUTES
from mooring.gateway.logs import ApplicationLog
from mooring.gateway.tokens import TokenFile
from tests.lab.certificates import Authority
from tests.lab.stdio import COMMAND, lab_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def admin() -> str:
    return TokenFile(state_home() / "gateway-tokens.json").create("root", scopes=["admin"])[0]


async def ask(here: Any, token: str | None, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{here.base}/admin/v1{path}"
    async with here.http.request(method, url, json=body, headers=headers) as answer:
        return answer.status, await answer.json(content_type=None)


def paths() -> list[tuple[str, str]]:
    return [
        (route.method, route.path.replace("{name}", "lab").replace("{id}", "00000000"))
        for route in ROUTES
        if route.path != "/openapi.json"
    ]


async def test_every_operation_needs_the_scope_and_an_open_gateway_has_no_admin_api(serving: Any) -> None:
    async with serving(lab_server()) as here:
        for method, path in paths():
            status, said = await ask(here, None, method, path, {} if method in ("POST", "PUT") else None)
            assert status == 403, path
            assert "mooring token create NAME --scope admin" in said["error"]
    file = TokenFile(state_home() / "gateway-tokens.json")
    plain, _ = file.create("ana", scopes=["admins", "Admin", "read"])
    async with serving(lab_server()) as here:
        for token, expected in ((None, 401), ("mooring_00000000_" + "a" * 43, 401), (plain, 403)):
            for method, path in paths():
                assert (await ask(here, token, method, path))[0] == expected, path
        assert [status.state for status in here.host.status()] == ["connected"]


async def test_the_document_describes_exactly_what_is_served(serving: Any, admin: str) -> None:
    async with serving(lab_server()) as here:
        _, document = await ask(here, None, "GET", "/openapi.json")
        described = {
            (method.upper(), path) for path, operations in document["paths"].items() for method in operations
        }
        assert described == {(route.method, route.path) for route in ROUTES}
        assert document["openapi"] == "3.1.0"
        assert document["servers"] == [{"url": f"{here.base}/admin/v1"}]
        identifiers = [one["operationId"] for ops in document["paths"].values() for one in ops.values()]
        assert len(set(identifiers)) == len(identifiers)
        assert (await ask(here, admin, "GET", "/nothing"))[0] == 404
        assert (await ask(here, admin, "PATCH", "/servers"))[0] == 405
        for body in ([1], "x"):
            assert (await ask(here, admin, "POST", "/tokens", body))[0] == 400
        for limit in ("0", "-1", "1001", "x", "٣"):
            assert (await ask(here, admin, "GET", f"/log?limit={limit}"))[0] == 400


async def test_servers_can_be_disabled_enabled_and_reconnected(serving: Any, admin: str) -> None:
    async with serving(lab_server(tools=["echo", "pid"])) as here:
        status, said = await ask(here, admin, "GET", "/servers")
        assert status == 200
        assert said["servers"] == [
            IsPartialDict(name="lab", state="connected", processes=1, connects=1, breaker="closed")
        ]
        assert await ask(here, admin, "POST", "/servers/lab/disable") == (
            200,
            {"name": "lab", "state": "disabled"},
        )
        caller = await here.caller(token=admin)
        assert await caller.tools() == []
        assert (await ask(here, admin, "POST", "/servers/lab/enable"))[0] == 200
        await here.host.ready(20)
        first = (await caller.call("pid")).text
        assert (await ask(here, admin, "POST", "/servers/lab/reconnect"))[0] == 200
        await here.host.ready(20)
        assert (await caller.call("pid")).text != first
        for verb in ("disable", "enable", "reconnect"):
            assert (await ask(here, admin, "POST", f"/servers/none/{verb}"))[0] == 404


async def test_sessions_and_tokens_are_listed_and_ended_without_showing_secrets(
    serving: Any, admin: str
) -> None:
    async with serving(lab_server(), gateway={"profiles": {"reading": {}}}) as here:
        new = {"name": "ana", "profiles": ["reading"], "scopes": ["read"], "expires": "90d"}
        status, made = await ask(here, admin, "POST", "/tokens", new)
        assert (status, made["name"]) == (200, "ana")
        ana = await here.caller(path="/mcp/reading", modern=False, token=made["token"])
        _, listed = await ask(here, admin, "GET", "/sessions")
        assert listed["sessions"] == [
            IsPartialDict(id=IsStr(regex="[0-9a-f]{8}"), principal="token:ana", profile="reading", running=0)
        ]
        _, known = await ask(here, admin, "GET", "/principals")
        assert [(one["name"], one["sessions"]) for one in known["principals"]] == [
            ("token:ana", 1),
            ("token:root", 0),
        ]
        _, tokens = await ask(here, admin, "GET", "/tokens")
        assert [one["name"] for one in tokens["tokens"]] == ["ana", "root"]
        assert all(one["last_used"] for one in tokens["tokens"]), "also before it is on disk"
        for text in map(json.dumps, (listed, known, tokens)):
            assert made["token"] not in text
            assert ana.session not in text
        assert (await ask(here, admin, "DELETE", f"/sessions/{ana.session[:8]}"))[0] == 200
        assert (await ana.call("echo", {"text": "x"})).status == 404
        assert (await ask(here, admin, "DELETE", "/sessions/ffffffff"))[0] == 404
        _, rotated = await ask(here, admin, "POST", "/tokens/ana/rotate", {"grace": "1h"})
        assert rotated["token"] != made["token"]
        assert (await ask(here, admin, "DELETE", "/tokens/ana"))[1]["state"] == "revoked"
        for body, expected in (
            ({"name": "x", "profiles": ["none"]}, 400),
            ({"name": "x", "scopes": "admin"}, 400),
            ({"name": "x", "expires": "soon"}, 400),
            ({"name": "root"}, 409),
            ({}, 400),
            ({"name": 5}, 400),
        ):
            assert (await ask(here, admin, "POST", "/tokens", body))[0] == expected, body
        for method, path in (("POST", "/tokens/none/rotate"), ("DELETE", "/tokens/none")):
            assert (await ask(here, admin, method, path))[0] == 404


async def test_a_misspelt_field_is_refused_and_not_ignored(serving: Any, admin: str) -> None:
    """A token with `expire` or `profile` would be valid for ever, and everywhere."""
    async with serving(lab_server(), gateway={"profiles": {"reading": {}}}) as here:
        for body, near in (
            ({"name": "x", "expire": "1h"}, "'expires'"),
            ({"name": "x", "profile": ["reading"]}, "'profiles'"),
            ({"name": "x", "scope": ["read"]}, "'scopes'"),
        ):
            status, said = await ask(here, admin, "POST", "/tokens", body)
            assert (status, near in said["error"]) == (400, True), said
        assert (await ask(here, admin, "PUT", "/log", {"levle": "debug", "level": "info"}))[0] == 400
        assert [one["name"] for one in (await ask(here, admin, "GET", "/tokens"))[1]["tokens"]] == ["root"]
        _, document = await ask(here, None, "GET", "/openapi.json")
        schema = document["paths"]["/tokens"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert (schema["required"], schema["additionalProperties"]) == (["name"], False)


async def test_the_log_says_what_an_action_was_done_to(serving: Any, admin: str) -> None:
    async with serving(lab_server()) as here:
        caller = await here.caller(modern=False, token=admin)
        for method, path, body in (
            ("POST", "/tokens", {"name": "ana"}),
            ("DELETE", "/tokens/ana", None),
            ("POST", "/servers/lab/reconnect", None),
            ("DELETE", f"/sessions/{caller.session[:8]}", None),
            ("PUT", "/log", {"logger": "mooring.host", "level": "info"}),
        ):
            assert (await ask(here, admin, method, path, body))[0] == 200
        _, said = await ask(here, admin, "GET", "/log")
        actions = [one["message"] for one in said["lines"] if one["message"].startswith("admin action=")]
        assert [text.partition("target=")[2] for text in actions] == [
            *("'ana'", "'ana'", "'lab'", f"'{caller.session[:8]}'", "'mooring.host'"),
        ]


def test_a_level_that_was_set_ends_with_the_next_settings() -> None:
    log = ApplicationLog()
    try:
        log.use(LogSettings(level="info"))
        log.set_level("mooring.host", "debug")
        assert logger("mooring.host").getEffectiveLevel() == logging.DEBUG
        log.use(LogSettings(level="warning"))
        assert logger("mooring.host").getEffectiveLevel() == logging.WARNING
    finally:
        log.close()


async def test_the_logs_can_be_read_and_their_level_changed(serving: Any, admin: str, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with serving(lab_server(), gateway={"audit": str(audit)}) as here:
        caller = await here.caller(token=admin)
        for n in range(3):
            await caller.call("echo", {"text": str(n)})
        async with asyncio.timeout(10):
            while len((await ask(here, admin, "GET", "/audit?limit=2"))[1]["lines"]) < 2:
                await asyncio.sleep(0.05)
        [_, last] = (await ask(here, admin, "GET", "/audit?limit=2"))[1]["lines"]
        assert last == IsPartialDict(verb="call", principal="token:root", tool="echo", outcome="ok")
        level = {"logger": "mooring.gateway", "level": "debug"}
        assert (await ask(here, admin, "PUT", "/log", level))[0] == 200
        assert (await ask(here, admin, "PUT", "/log", {"logger": "aiohttp", "level": "debug"}))[0] == 409
        _, said = await ask(here, admin, "GET", "/log")
        assert "admin action='PUT /log' by='token:root'" in said["lines"][-1]["message"]


# --- commands ---------------------------------------------------------------------------------------------


async def command(here: Any, token: str | None, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `mooring --gateway URL …`."""
    environment = {**os.environ, **({"MOORING_GATEWAY_TOKEN": token} if token else {})}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mooring", "--gateway", here.base, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    async with asyncio.timeout(30):
        out, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), error.decode()


async def test_the_commands_ask_the_running_gateway(serving: Any, admin: str) -> None:
    async with serving(lab_server()) as here:
        await here.caller(modern=False, token=admin)
        (
            listed,
            shown,
            sessions,
            logs,
            silent,
            missing,
            strange,
            plain,
            nothing,
            other,
            ended,
        ) = await asyncio.gather(
            command(here, admin, "list", "--json"),
            command(here, admin, "list"),
            command(here, admin, "sessions"),
            command(here, admin, "logs", "--json"),
            command(here, admin, "logs", "lab"),
            command(here, admin, "logs", "labb"),
            command(here, admin, "approve", "labb/echo"),
            command(here, None, "list"),
            command(here, "mooring_00000000_" + "a" * 43, "sessions"),
            command(here, admin, "tools"),
            command(here, admin, "sessions", "--end", "none"),
        )
        assert (listed[0], [one["name"] for one in json.loads(listed[1])["servers"]]) == (0, ["lab"])
        assert "lab" in shown[1]
        assert "connected" in shown[1]
        assert "token:root" in sessions[1]
        assert isinstance(json.loads(logs[1]), list)
        assert silent == (0, "", "note: This log has no lines yet.\n")
        assert missing == (2, "", "error: There is no server 'labb'. Did you mean 'lab'?\n")
        assert ended == (2, "", "error: There is no such session.\n")
        assert (strange[0], "There is no server 'labb'" in strange[2]) == (2, True)
        assert plain[0] == 2
        assert "MOORING_GATEWAY_TOKEN" in plain[2]
        assert nothing[0] == 3
        assert "the token is invalid" in nothing[2]
        assert (other[0], "does not work with --gateway" in other[2]) == (2, True)


async def test_watch_prints_the_events_of_the_gateway(serving: Any, admin: str) -> None:
    async with serving(lab_server()) as here:
        environment = {**os.environ, "MOORING_GATEWAY_TOKEN": admin}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mooring", "--gateway", here.base, "watch", "--json"),
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        try:
            async with asyncio.timeout(30):
                reading = asyncio.create_task(process.stdout.readline())
                while not reading.done():
                    await ask(here, admin, "POST", "/servers/lab/reconnect")
                    await asyncio.sleep(0.2)
                assert "event" in json.loads(reading.result())
        finally:
            process.terminate()
            await process.wait()


async def test_the_stream_of_events_holds_no_id_of_a_session_that_could_be_used(
    serving: Any, admin: str
) -> None:
    """The id of a session is a credential of its client; a reader of events must not get it."""
    async with serving(lab_server()) as here:
        client = await here.caller(modern=False, token=admin)
        headers = {"Authorization": f"Bearer {admin}"}
        async with asyncio.timeout(30), here.http.get(f"{here.base}/admin/v1/events", headers=headers) as got:
            assert (await client.call("echo", {"text": "x"})).text == "x"
            seen = ""
            while "CallFinished" not in seen:
                seen += (await got.content.readline()).decode()
        assert client.session
        assert '"session"' in seen
        assert client.session not in seen
        assert client.session[:8] in seen


async def test_a_gateway_with_a_certificate_of_an_own_authority_is_asked_with_its_file(
    serving: Any, admin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "ca")
    leaf = authority.made.issue_cert("127.0.0.1")
    file = tmp_path / "site.pem"
    file.write_bytes(leaf.private_key_and_cert_chain_pem.bytes())
    async with serving(lab_server(), gateway={"tls": {"cert": str(file)}}) as here:

        class There:
            base = here.serving.url.removesuffix("/mcp")

        code, _, error = await command(There(), admin, "list")
        assert (code, "is not trusted" in error, "SSL_CERT_FILE" in error) == (1, True, True), error
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        code, out, error = await command(There(), admin, "list")
        assert (code, "connected" in out) == (0, True), error


async def test_a_token_is_not_sent_over_plain_http_to_another_machine(admin: str) -> None:
    class Elsewhere:
        base = "http://mcp.example.com"

    code, _, error = await command(Elsewhere(), admin, "list")
    assert (code, "use https" in error) == (2, True)


async def test_approve_says_why_there_is_nothing_to_approve(serving: Any, admin: str) -> None:
    async with serving(lab_server()) as here:
        code, _, error = await command(here, admin, "approve", "lab", "--yes")
        assert (code, "has no lock for lab, so nothing is blocked" in error) == (2, True), error
        status, said = await ask(here, admin, "POST", "/lock/approve", {"server": "lab", "revision": ""})
        assert (status, "there is no lock" in said["error"]) == (409, True)


async def test_a_changed_tool_is_reviewed_and_approved_at_the_gateway(tmp_path: Path) -> None:
    """With the real program: a lock, a server that changes, and an approval from outside."""
    config = tmp_path / "mcp.json"

    def write(*tools: str) -> None:
        server: dict[str, Any] = {
            "command": COMMAND[0],
            "args": [*COMMAND[1:], json.dumps({"tools": [*tools]})],
            "transforms": {"pid": {"name": "process"}} if "pid" in tools else {},
        }
        config.write_text(json.dumps({"mcpServers": {"lab": server}}))

    write("echo")

    async def mooring(*words: str) -> int:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mooring", "--config", str(config), *words),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return await process.wait()

    assert await mooring("lock") == 0
    token, _ = TokenFile(state_home() / "gateway-tokens.json").create("root", scopes=["admin"])
    write("echo", "pid")
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "mooring",
            "--config",
            str(config),
            "serve",
            "--http",
            "127.0.0.1:0",
            "--json",
        ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(40), aiohttp.ClientSession() as http:
            text = await process.stdout.readline()

            class Here:
                base = json.loads(text)["url"].removesuffix("/mcp")

            here: Any = Here()
            here.http = http
            while not (found := (await ask(here, token, "GET", "/lock/changes"))[1]["servers"]):
                await asyncio.sleep(0.1)
            assert found[0]["server"] == "lab"
            stale = {"server": "lab", "revision": "0" * 16}
            assert (await ask(here, token, "POST", "/lock/approve", stale))[0] == 409
            code, out, _ = await command(here, token, "approve", "lab")
            assert (code, "pid" in out) == (3, True), "without a terminal it is shown and not approved"
            assert "transform of tool pid:\n  shown as 'process'" in out
            code, _, error = await command(here, token, "approve", "lab/nothing", "--yes")
            assert (code, "no changed tool 'nothing'" in error) == (0, True), error
            code, _, error = await command(here, token, "approve", "lab", "--yes")
            assert (code, "Approved" in error) == (0, True)
            assert (await ask(here, token, "GET", "/lock/changes"))[1]["servers"] == []
            assert "pid" in (tmp_path / "mooring.lock").read_text()
    finally:
        process.terminate()
        await process.wait()
