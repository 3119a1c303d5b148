"""Running the gateway: health, metrics, audit, draining, reloading, profiles, discovery, and the command."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from dirty_equals import IsStr

from mooring import ConfigError
from mooring.config.sections import Policy, ProfileSettings
from tests.lab.caller import Caller, soon
from tests.lab.libraries import library_server
from tests.lab.stdio import COMMAND, lab_server, wire_log
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


async def fetched(here: Any, path: str) -> tuple[int, str]:
    async with here.http.get(here.base + path) as response:
        return response.status, await response.text()


async def test_health_readiness_and_metrics_can_be_asked_for(serving: Any) -> None:
    async with serving(lab_server()) as here:
        assert (await fetched(here, "/health"))[0] == 200
        status, text = await fetched(here, "/ready")
        assert (status, json.loads(text)["ready"]) == (200, True)
        client = await here.caller()
        await client.call("echo", {"text": "hi"})
        status, text = await fetched(here, "/metrics")
        assert status == 200
        assert 'mooring_gateway_requests_total{method="tools/call",outcome="ok"} 1' in text
        assert 'mooring_server_up{server="lab"} 1' in text


async def test_ready_counts_what_is_hidden_and_names_it_to_those_who_have_a_token(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOB", "bobs-very-long-token")
    many = lab_server(
        "many",
        definitions=[{"name": f"t{n}\x1b[2J", "inputSchema": {"type": "object"}} for n in range(150)],
        tools=["echo"],
        settings={"allow": ["echo"]},
    )
    lab = lab_server("lab", tools=["echo", "fail", "sleep"], settings={"deny": ["sleep"]})
    tokens = {"tokens": [{"name": "bob", "token": "${BOB}"}]}
    async with serving(many, lab, gateway=tokens, policy=Policy(deny=["lab/fail"])) as here:
        status, text = await fetched(here, "/ready")
        assert (status, json.loads(text)["hidden"]) == (
            200,
            {"count": 152, "by": {"filter": 151, "policy": 1}, "kinds": {"tool": 152}},
        )
        for token, shown in (("bobs-very-long-token", True), ("another-very-long-token", False)):
            headers = {"Authorization": f"Bearer {token}"}
            async with here.http.get(here.base + "/ready", headers=headers) as response:
                hidden = (await response.json())["hidden"]
                assert "\x1b" not in await response.text()
            assert ("tools" in hidden) == shown
            if shown:
                assert len(hidden["tools"]) == 100
                assert hidden["tools"][:2] == [
                    {"server": "lab", "tool": "sleep", "by": "filter", "reason": IsStr()},
                    {"server": "lab", "tool": "fail", "by": "policy", "reason": IsStr(regex=".*lab/fail.*")},
                ]


@pytest.mark.parametrize("way", ["flag", "gateway", "host"])
async def test_each_request_is_audited_with_its_principal_and_without_its_content(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("BOB", "bobs-very-long-token")
    file = tmp_path / "audit.jsonl"
    settings = {
        "tokens": [{"name": "bob", "token": "${BOB}"}],
        "profiles": {"part": {}},
        **({"audit": str(file)} if way == "gateway" else {}),
    }
    lab = lab_server(tools=["echo", "fail"])
    books = library_server("books", settings={"deny": ["*"]}, resources={"memo:///a": "secret"})
    async with serving(
        *(lab, books),
        gateway=settings,
        options={"audit": str(file)} if way == "flag" else {},
        **({"audit": str(file)} if way == "host" else {}),
    ) as here:
        client = await here.caller(token="bobs-very-long-token")
        await client.call("echo", {"text": "a secret"})
        await client.call("fail")
        await client.ask("tools/call", {"name": "echo", "arguments": "a secret"})
        await client.ask("resources/read", {"uri": "memo:///a"})
        old = await here.caller(modern=False, path="/mcp/part", token="bobs-very-long-token")
        await old.call("no\x1b[2Jsuch")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["verb"], line["name"], line["outcome"], line.get("error")) for line in lines] == [
        ("call", "echo", "ok", None),
        ("call", "fail", "error", None),
        ("call", "echo", "refused", "-32602"),
        ("read", "memo:///a", "ok", None),
        ("call", "no\\x1b[2Jsuch", "not sent", "UnknownTool"),
    ]
    assert {line["principal"] for line in lines} == {"token:bob"}
    assert [line.get("profile") for line in lines] == [None, None, None, None, "part"]
    assert len(lines[4]["session"]) == 8  # the whole one would be as good as the session
    assert "secret" not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


async def test_a_gateway_whose_audit_log_cannot_be_written_does_not_begin_to_serve(
    serving: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        async with serving(lab_server(), options={"audit": str(tmp_path)}):
            pass


async def test_what_is_under_way_at_the_end_is_finished_and_streams_are_ended_properly(serving: Any) -> None:
    async with serving(lab_server(tools=["sleep"])) as here:
        client = await here.caller()
        async with client.listening(toolsListChanged=True) as listening:
            call = asyncio.create_task(client.call("sleep", {"seconds": 0.5}))
            await until(lambda: here.serving.gateway.under_way == 1)
            draining = asyncio.create_task(here.serving.gateway.drain(here.serving.gateway.settings.drain))
            last = await soon(listening)
            assert last["id"] == "listen"
            assert last["result"]["resultType"] == "complete"
            assert (await client.ask("tools/list")).status == 503
            assert (await call).status == 200
            await draining


async def test_a_profile_shows_its_own_part_under_its_own_names_and_calls_nothing_else(serving: Any) -> None:
    profiles = {
        "narrow": {"servers": ["lab"], "deny": ["lab/pid"], "style": "double"},
        "found": {"servers": ["other"], "style": "raw", "discovery": "always"},
    }
    servers = lab_server(), lab_server("other", tools=["fail"])
    async with serving(*servers, style="mcp", gateway={"profiles": profiles}) as here:
        narrow = await here.caller(path="/mcp/narrow")
        assert await narrow.tools() == ["mcp__lab__echo"]
        assert (await narrow.call("mcp__lab__echo", {"text": "hi"})).text == "hi"
        for name in ("mcp__lab__pid", "mcp_lab_pid", "mcp_other_fail", "mcp__other__fail"):
            assert (await narrow.call(name)).error["code"] == -32602
        whole = await here.caller()
        assert await whole.tools() == ["mcp_lab_echo", "mcp_lab_pid", "mcp_other_fail"]
        assert (await (await here.caller(path="/mcp/none")).ask("tools/list")).status == 404


async def test_with_discovery_a_session_sees_what_it_selected_and_no_other_session_does(serving: Any) -> None:
    whole = ProfileSettings(discovery="always")
    async with serving(lab_server(), whole=whole) as here:
        one, other = await here.caller(modern=False), await here.caller(modern=False)
        discovery = ["tools_groups", "tools_search", "tools_select"]
        assert await one.tools() == discovery
        found = await one.call("tools_search", {"query": "echo"})
        assert "echo" in found.text
        selected = await one.call("tools_select", {"tools": ["echo"]})
        assert [m.get("method") for m in selected.messages] == ["notifications/tools/list_changed", None]
        assert await one.tools() == [*discovery, "echo"]
        assert await other.tools() == discovery
        assert (await one.call("echo", {"text": "hi"})).text == "hi"


async def test_a_changed_configuration_reaches_clients_that_stay(serving: Any, tmp_path: Path) -> None:
    from mooring import Host
    from mooring.gateway.serve import serve_http

    file = tmp_path / "mcp.json"

    def write(*names: str) -> None:
        entry = {"command": COMMAND[0], "args": [*COMMAND[1:], "{}"]}
        file.write_text(json.dumps({"mcpServers": dict.fromkeys(names, entry)}))

    write("one")
    async with (
        Host.from_config(file, lock=False) as host,
        serve_http(host) as serving_now,
        aiohttp.ClientSession() as http,
    ):
        await host.ready(10)
        client = Caller(http, serving_now.url, modern=False)
        await client.begin()
        async with client.standing() as standing:
            write("one", "two")
            await host.reload()
            assert (await soon(standing))["method"] == "notifications/tools/list_changed"
            assert "mcp_two_echo" in await client.tools()
            file.write_text("{")
            with pytest.raises(Exception, match="JSON"):
                await host.reload()
            assert "mcp_two_echo" in await client.tools()


async def test_a_session_that_is_not_heard_of_is_let_go(serving: Any) -> None:
    async with serving(lab_server(), session_ttl=60) as here:
        client, other = await here.caller(modern=False), await here.caller(modern=False)
        registry = here.serving.gateway.registry
        for one in registry:
            one.used -= 61 if one.id == client.session else 0
        assert await registry.reap() == 1
        assert (await other.ask("tools/list")).status == 200
        assert (await client.ask("tools/list")).status == 404


async def test_a_client_that_ends_its_session_is_forgotten(serving: Any) -> None:
    async with serving(lab_server()) as here:
        client = await here.caller(modern=False)
        headers = {"Mcp-Session-Id": str(client.session)}
        async with here.http.delete(here.base + "/mcp", headers=headers) as response:
            assert response.status == 200
        assert (await client.ask("tools/list")).status == 404
        assert len(here.serving.gateway.registry) == 0


async def test_old_clients_are_served_over_http_and_sse(hosting: Any, serving: Any) -> None:
    from mooring import ServerConfig

    async with serving(lab_server(), options={"sse": True}) as here:
        config = ServerConfig(name="gw", url=f"{here.base}/sse", transport="sse")
        async with hosting(config, style="raw", lock=False) as host:
            assert (await host.call("echo", {"text": "hi"})).text == "hi"
            [status] = host.status()
            assert status.transport == "sse"


async def test_without_the_option_there_is_no_sse(serving: Any) -> None:
    async with serving(lab_server()) as here:
        assert (await fetched(here, "/sse"))[0] == 404


def configured(tmp_path: Path, **more: Any) -> str:
    file = tmp_path / "mcp.json"
    script = {"tools": ["echo", "sleep"], "log": str(tmp_path / "wire")}
    entry = {"command": COMMAND[0], "args": [*COMMAND[1:], json.dumps(script)]}
    file.write_text(json.dumps({"mcpServers": {"lab": entry}, **more}))
    return str(file)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "mooring", *words]


async def test_the_command_serves_a_host_on_standard_input_and_output(hosting: Any, tmp_path: Path) -> None:
    from mooring import ServerConfig

    words = command("--config", configured(tmp_path), "--no-lock", "serve", "--stdio", "--style", "raw")
    env = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    gateway = ServerConfig(name="gw", command=words[0], args=tuple(words[1:]), env=env)
    async with hosting(gateway, style="raw", lock=False) as host:
        assert (await host.call("echo", {"text": "through"})).text == "through"
        [status] = host.status()
        assert status.protocol == "2026-07-28"


async def test_standard_streams_that_the_event_loop_cannot_wait_for_are_used_in_threads(
    hosting: Any, tmp_path: Path
) -> None:
    from mooring import ServerConfig

    program = (
        "import sys; from mooring.gateway import stdio; from mooring.cli.app import main\n"
        "stdio._can_wait_for = lambda file: False\n"  # as on Windows
        "sys.exit(main(sys.argv[1:]))"
    )
    words = ("--config", configured(tmp_path), "--no-lock", "serve", "--stdio", "--style", "raw")
    env = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    gateway = ServerConfig(name="gw", command=sys.executable, args=("-c", program, *words), env=env)
    async with hosting(gateway, style="raw", lock=False) as host:
        texts = [str(n) * 20_000 for n in range(10)]
        results = await asyncio.gather(*(host.call("echo", {"text": text}) for text in texts))
        assert [result.structured for result in results] == [{"text": text} for text in texts]


def conversation(calls: int) -> str:
    """What a handshake client says from its first word to its last, without waiting for an answer."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/list"},
        *(
            {"id": n, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": str(n)}}}
            for n in range(2, 2 + calls)
        ),
    ]
    return "\n".join(json.dumps({"jsonrpc": "2.0", **message}) for message in messages)


@pytest.mark.parametrize("out", ["pipe", "file"])
def test_the_command_answers_all_that_a_file_asks(tmp_path: Path, out: str) -> None:
    said, heard = tmp_path / "said", tmp_path / "heard"
    said.write_text(conversation(1500))  # the last line has no end
    words = command("--config", configured(tmp_path), "--no-lock", "serve", "--stdio", "--style", "raw")
    with said.open() as source, heard.open("w") as target:
        done = subprocess.run(
            words,
            stdin=source,
            stdout=target if out == "file" else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    answers = [
        json.loads(line) for line in (heard.read_text() if out == "file" else done.stdout).splitlines()
    ]
    by_id = {answer["id"]: answer for answer in answers if "id" in answer}
    assert len(by_id) == 1502
    assert by_id[1501]["result"]["content"][0]["text"] == "1501"


def test_the_command_on_standard_input_reads_its_configuration_again_on_sighup(tmp_path: Path) -> None:
    file = configured(tmp_path)
    words = command("--config", file, "--no-lock", "serve", "--stdio", "--style", "raw")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            while True:
                answer = json.loads(process.stdout.readline())
                if answer.get("id") == number:
                    return answer["result"]

        def tools(number: int) -> set[str]:
            return {tool["name"] for tool in ask(number, "tools/list", {})["tools"]}

        ask(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        assert tools(2) == {"echo", "sleep"}
        Path(file).write_text(Path(file).read_text().replace('\\"sleep\\"', '\\"pid\\"'))
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while "pid" not in tools(3):
            assert time.monotonic() < deadline
        process.stdin.close()
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == "note: Configuration reloaded: restarted lab.\n"


def test_sighup_says_which_settings_changed(tmp_path: Path) -> None:
    file = Path(configured(tmp_path))
    written = json.loads(file.read_text())
    words = command("--config", str(file), "--no-lock", "serve", "--stdio", "--style", "raw")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        process.stdout.readline()
        shaped = {"lab": {**written["mcpServers"]["lab"], "transforms": {"echo": {"title": "Say it"}}}}
        denied = {"policy": {"deny": ["*/nothing"]}, "guards": {"budget": 9}}
        for changes, said in (
            ({}, "nothing changed"),
            (denied, "policy changed; guards changed"),
            ({**denied, "mcpServers": shaped}, "changed lab"),
        ):
            file.write_text(json.dumps({**written, **changes}))
            process.send_signal(signal.SIGHUP)
            assert process.stderr.readline() == f"note: Configuration reloaded: {said}.\n"
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_list_that_waits_for_a_server_is_answered_without_an_announcement_of_that_server(
    tmp_path: Path,
) -> None:
    """Semantic Kernel lists again inside its message handler, and waits there for ever."""
    script = json.dumps({"start_delay": 1.0})
    file = tmp_path / "mcp.json"
    file.write_text(
        json.dumps({"mcpServers": {"lab": {"command": COMMAND[0], "args": [*COMMAND[1:], script]}}})
    )
    words = command("--config", str(file), "--no-lock", "serve", "--stdio", "--style", "raw")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(conversation(0) + "\n")
        process.stdin.flush()
        heard = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.write('{"jsonrpc": "2.0", "id": 9, "method": "ping"}\n')
        process.stdin.flush()
        heard.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        heard += map(json.loads, process.stdout)
    assert [one.get("id", one.get("method")) for one in heard] == [0, 1, 9]
    assert [tool["name"] for tool in heard[1]["result"]["tools"]] == ["echo", "pid"]


@pytest.mark.parametrize("moment", ["parser_of", "_command"])
def test_sighup_does_not_end_serve_while_it_starts(moment: str, tmp_path: Path) -> None:
    """The signal arrives before the arguments are read, and again before the server runs."""
    script = f"""
import os, signal, sys
from mooring.cli import app

inner = app.{moment}

def interrupted(*args):
    os.kill(os.getpid(), signal.SIGHUP)
    return inner(*args)

app.{moment} = interrupted
sys.exit(app.main(sys.argv[1:]))
"""
    words = ["--config", configured(tmp_path), "--no-lock", "serve", "--stdio"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], stdin=subprocess.DEVNULL, timeout=60, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def until_ready(http: aiohttp.ClientSession, port: int, workers: int = 1) -> None:
    """Until so many processes have said that they are ready, each on connections of its own."""
    url, alone = f"http://127.0.0.1:{port}/ready", {"Connection": "close"}

    def listening() -> int:
        lines = Path("/proc/net/tcp").read_text().splitlines()
        return sum(f":{port:04X} 00000000:0000 0A" in line for line in lines)

    async def ready() -> bool:
        async with http.get(url, headers=alone) as response:
            return response.status == 200

    await until(lambda: listening() >= workers, 60)
    async with asyncio.timeout(60):
        while not all([await ready() for _ in range(8 * workers)]):
            pass


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_command_serves_http_and_ends_gracefully_on_a_signal(tmp_path: Path, workers: int) -> None:
    port = free_port()
    words = command("--config", configured(tmp_path), "--no-lock", "serve", "--http", f"127.0.0.1:{port}")
    process = await asyncio.to_thread(
        subprocess.Popen, [*words, "--style", "raw", "--workers", str(workers)], stderr=subprocess.PIPE
    )
    try:
        async with aiohttp.ClientSession() as http:
            await until_ready(http, port, workers)
            url = f"http://127.0.0.1:{port}/mcp"
            new, old = Caller(http, url, modern=True), Caller(http, url, modern=False)
            await old.begin()
            assert old.session is not None
            for client in (new, old):
                assert (await client.call("echo", {"text": "hi"})).text == "hi"
            call = asyncio.create_task(new.call("sleep", {"seconds": 0.5}))
            await until(
                lambda: any("sleep" in str(entry.get("params")) for entry in wire_log(tmp_path / "wire"))
            )
            process.send_signal(signal.SIGTERM)
            assert (await call).status == 200
            code = await asyncio.to_thread(process.wait, 15)
            assert code == 0
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_where_it_serves_is_one_line_of_json_on_request_and_a_note_otherwise(tmp_path: Path) -> None:
    words = command("--config", configured(tmp_path), "serve", "--http", "127.0.0.1:0")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*words, "--json"], **pipes) as process:
        assert process.stdout is not None
        document = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        rest, said = process.communicate(timeout=20)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", document.pop("url"))
    assert (document, rest, said, process.returncode) == ({}, "", "", 0)
    with subprocess.Popen(words, **pipes) as process:
        assert process.stderr is not None
        note = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=20)
    assert (out, process.returncode) == ("", 0)
    assert re.fullmatch(r"note: Serving at http://127\.0\.0\.1:\d+/mcp\n", note)


def test_json_and_the_protocol_do_not_share_standard_output(tmp_path: Path) -> None:
    words = command("--config", configured(tmp_path), "serve", "--stdio", "--json")
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["kind"]) == (2, "UsageError")
    assert "--json needs --http" in done.stderr


def test_the_command_refuses_a_public_address_without_tokens_and_names_the_settings(tmp_path: Path) -> None:
    words = command("--config", configured(tmp_path), "serve", "--http", "0.0.0.0:0")
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "gateway.tokens" in done.stderr


def test_a_wrong_setting_of_the_gateway_is_named(tmp_path: Path) -> None:
    gateway = {"profiles": {"a b": {}}}
    words = command("--config", configured(tmp_path, gateway=gateway), "list")
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert "a b" in done.stderr


def test_the_command_does_not_serve_with_a_setting_of_the_gateway_that_is_wrong(tmp_path: Path) -> None:
    gateway = {"tokens": [{"name": "ana", "token": "written-out-in-full"}]}
    words = command("--config", configured(tmp_path, gateway=gateway), "serve", "--http", "127.0.0.1:0")
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "reference" in done.stderr
    assert "written-out" not in done.stderr


@pytest.mark.parametrize("modern", [True, False])
async def test_a_session_with_a_running_call_is_not_idle(serving: Any, modern: bool) -> None:
    isolated = lab_server(tools=["sleep", "pid"], settings={"isolation": "session"})
    async with serving(isolated, session_ttl=0.4, idle_reap_interval=0.1) as here:
        client = await here.caller(modern=modern)
        before = (await client.call("pid")).text
        reply = await client.call("sleep", {"seconds": 1.5})  # longer than a session may be idle
        assert not reply.result.get("isError"), reply.last
        assert (await client.call("pid")).text == before


async def test_a_server_that_wants_isolation_runs_once_for_each_session(serving: Any) -> None:
    isolated = lab_server(tools=["pid"], settings={"isolation": "session"})
    async with serving(isolated) as here:
        one, other = await here.caller(modern=False), await here.caller(modern=False)
        pids = [(await client.call("pid")).text for client in (one, other, one, other)]
        assert pids[0] == pids[2] != pids[1] == pids[3]
        await here.serving.gateway.registry.close()
        await until(lambda: not Path(f"/proc/{pids[0]}").exists())
