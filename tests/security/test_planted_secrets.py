"""TH19: ten kinds of planted secrets are in use during every fault, and none appears in any output."""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from aiohttp import web

from mooring import Host, Secret, ServerConfig, demo
from mooring.cli import main
from mooring.errors import MooringError
from tests.lab.http import HttpLab

pytestmark = pytest.mark.anyio

PLANTED = {
    kind: f"pl+nted/{kind}?4711="
    for kind in ("env", "header", "userinfo", "query", "arg", "file", "keyring", "cmd", "client", "object")
} | {"userinfo": "planted-userinfo-4711", "header": "planted+header/4711=", "cmd": "planted-cmd-4711"}

TELLTALE = """
import base64, json, os, sys
from urllib.parse import quote
sys.path.insert(0, FOLDER)
from protocol import Server, DemoTool, serve_stdio
known = [value for name, value in os.environ.items() if name.startswith("P_")] + sys.argv[2:]
spelled = [form for value in known for form in (
    value, quote(value, safe=""), base64.b64encode(value.encode()).decode(),
    base64.b64encode(b"x:" + value.encode()).decode(), json.dumps(value))]
if sys.argv[1] == "crash":
    print("on stdout " + " ".join(spelled), flush=True)
    for form in spelled[-15:]:
        print("leaked " + form, file=sys.stderr)
    sys.stderr.write("x" * 1990 + spelled[0])
    sys.stderr.flush()
    sys.exit(3)
def fail():
    raise ValueError("it failed")
text = "I know " + " ".join(spelled)
print(text, file=sys.stderr, flush=True)
serve_stdio(Server(name="echo", era="handshake", instructions=text,
                   tools={"say": DemoTool(description=text, properties={}, handler=fail)}))
"""


def spellings(secret: str) -> list[str]:
    raw = secret.encode()
    return [
        secret,
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        *(base64.b64encode(b"x:"[:n] + raw).decode()[2 * n : -4] for n in range(3)),
    ]


def leaks(text: str) -> list[str]:
    return [kind for kind, secret in PLANTED.items() for form in spellings(secret) if form in text]


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """An entry whose environment, arguments and login hold every kind that a child can be given."""
    folder = str(Path(demo.command("notes")[-1]).parent)
    (tmp_path / "telltale.py").write_text(TELLTALE.replace("FOLDER", repr(folder)))
    (tmp_path / "secret.txt").write_text(PLANTED["file"] + "\n")
    (tmp_path / "printed.txt").write_text(PLANTED["cmd"])
    monkeypatch.setenv("PLANTED_ENV", PLANTED["env"])
    monkeypatch.setenv("PLANTED_HEADER", PLANTED["header"])
    monkeypatch.setenv("PLANTED_QUERY", PLANTED["query"])
    keyring = SimpleNamespace(get_password=lambda service, name: PLANTED["keyring"])
    monkeypatch.setitem(sys.modules, "keyring", keyring)

    def entry(fate: str) -> dict[str, Any]:
        return {
            "command": sys.executable,
            "args": ["-S", str(tmp_path / "telltale.py"), fate, "--password", PLANTED["arg"]],
            "env": {
                "P_ENV": "${PLANTED_ENV}",
                "P_DATABASE_URL": f"postgres://me:{PLANTED['userinfo']}@db/x",
                "P_FILE": "${file:secret.txt}",
                "P_KEYRING": "${keyring:any}",
                "P_CMD": f"${{cmd:cat {tmp_path / 'printed.txt'}}}",
                "P_CLIENT": PLANTED["client"],
            },
            "auth": {"client_id": "me", "client_secret": PLANTED["client"]},
            "connect_timeout": "10s",
        }

    return entry


async def test_TH19_planted_secrets_leave_no_trace_in_what_a_host_says(
    tmp_path: Path,
    planted: Callable[[str], dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "mcp.json"

    async def echo(request: web.Request, message: dict[str, Any]) -> web.Response:
        said = f"{dict(request.headers)} {request.query_string} {json.dumps(dict(request.query))}"
        return web.Response(status=400, text=said)

    async def answer(request: web.Request, message: dict[str, Any]) -> web.Response:
        error = {"code": -32000, "message": str(dict(request.headers)), "data": dict(request.headers)}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})

    said: list[str] = []
    async with HttpLab() as broken, HttpLab() as good:
        for method in ("server/discover", "initialize"):
            broken.faults[method] = echo
        good.faults["tools/call"] = answer
        headers = {"Authorization": "Bearer ${PLANTED_HEADER}"}
        file.write_text(
            json.dumps(
                {
                    "audit": {"path": f"{os.environ['MOORING_HOME']}/audit.jsonl", "arguments": "redact"},
                    "mcpServers": {
                        "crash": planted("crash"),
                        "chatty": planted("serve"),
                        "broken": {"url": f"{broken.url}?api_key=${{PLANTED_QUERY}}", "headers": headers,
                                   "type": "streamable-http"},
                        "good": {"url": good.url, "headers": headers},
                    }
                }
            )
        )  # fmt: skip
        with anyio.fail_after(30):
            host = Host.from_config(file)
            events = host.events()
            async with host:
                await host.ready(20)
                await host.add(
                    ServerConfig(
                        name="python",
                        url=good.url,
                        headers={"X-Key": Secret(PLANTED["object"])},
                    )
                )
                for tool in ("mcp_good_echo", "mcp_python_echo", "mcp_chatty_say"):
                    result = await host.call(tool, {"note": f"noted {' '.join(PLANTED.values())}"})
                    assert result.is_error
                    said += [
                        result.text,
                        repr(result),
                        repr(result.error),
                        repr(vars(result.error or object)),
                    ]
                states = {status.name: status.state for status in host.status()}
                said += [
                    repr(host.status()),
                    repr(host.config),
                    repr(host.catalog),
                    repr(host.provider("good")),
                ]
                said += [repr(tool) for tool in host.catalog.tools.values()]
                said += [host.redact(" ".join(PLANTED.values()))]
            said += [repr(event) async for event in events]
    assert states == {
        "chatty": "connected", "good": "connected", "python": "connected", "crash": "failed",
        "broken": "failed",
    }  # fmt: skip
    crash = next(text for text in said if "its last lines" in text)
    assert "leaked" in crash
    assert "***" in crash
    written = "\n".join(
        path.read_text(errors="replace")
        for path in Path(os.environ["MOORING_HOME"]).rglob("*")
        if path.is_file()
    )
    assert "I know ***" in written  # the cache was written, and is without them
    assert "noted ***" in written  # so was the audit log
    assert "leaked ***" in caplog.text
    # The laboratory's own web server writes down which address it was asked for.
    logged = "\n".join(record.getMessage() for record in caplog.records if record.name != "aiohttp.access")
    for text in (*said, logged, written):
        assert leaks(text) == []


def chain(problem: BaseException | None) -> str:
    """All that an error tells: texts, attributes and notes of it and of every error it leads to."""
    said: list[str] = []
    left, seen = [problem], set[int]()
    while left:
        if (each := left.pop()) is None or id(each) in seen:
            continue
        seen.add(id(each))
        said += [repr(each), str(each), repr(each.args), repr(vars(each)), *getattr(each, "__notes__", ())]
        left += [each.__context__, each.__cause__, *getattr(each, "exceptions", ())]
    return "\n".join(said)


async def test_TH19_no_error_leads_to_another_one_that_holds_a_secret(
    hosting: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("PLANTED_HEADER", PLANTED["header"])
    monkeypatch.setenv("PLANTED_QUERY", PLANTED["query"])

    async def answer(request: web.Request, message: dict[str, Any]) -> web.Response:
        reported = str(dict(request.headers)) + request.query_string
        error = {"code": -32000, "message": reported, "data": {"headers": [reported]}}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})

    async def refuse(request: web.Request, message: dict[str, Any]) -> web.Response:
        reported = str(dict(request.headers)) + request.query_string
        return web.Response(status=500, text=reported)

    async def elsewhere(request: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(status=307, headers={"Location": f"http://[{request.headers['X-Key']}"})

    async def ask_for_login(request: web.Request, message: dict[str, Any]) -> web.Response:
        reported = f'Bearer error="invalid_token", error_description="{request.headers["X-Key"]}"'
        return web.Response(status=401, headers={"WWW-Authenticate": reported})

    async def strange(request: web.Request, message: dict[str, Any]) -> web.Response:
        result = {"resultType": request.headers["X-Key"], "contents": 1, "messages": 1}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    found: list[BaseException | None] = []
    async with HttpLab(era="modern") as lab:
        server = ServerConfig(
            name="lab",
            url=f"{lab.url}?api_key=${{PLANTED_QUERY}}",
            headers={"X-Key": "${PLANTED_HEADER}", "Authorization": "Bearer ${PLANTED_HEADER}"},
        )
        async with hosting(server) as host:
            for fault in (answer, refuse, elsewhere, strange, ask_for_login):
                for method in ("tools/call", "resources/read", "prompts/get", "server/discover"):
                    lab.faults[method] = fault
                result = await host.call("mcp_lab_echo", {"text": "x"})
                assert result.error is not None, fault
                found.append(result.error)
                for verb in (
                    lambda: host.call("mcp_lab_echo", {"text": "x"}, check=True),
                    lambda: host.read("memo:///x", "lab"),
                    lambda: host.ping("lab"),
                    lambda: host.subscribe("memo:///x", "lab", timeout=5),
                ):
                    try:
                        await verb()
                    except MooringError as problem:
                        found.append(problem)
    assert len(found) >= 15
    assert any("***" in str(problem) for problem in found)
    for problem in found:
        assert leaks(chain(problem)) == [], repr(problem)
    for record in caplog.records:
        if record.name.startswith("mooring") and record.exc_info:
            assert leaks(chain(record.exc_info[1])) == []


def test_TH19_a_secret_that_is_no_text_is_in_no_error(tmp_path: Path) -> None:
    from mooring.config.references import Reference
    from mooring.config.secrets import default_lookup
    from mooring.errors import ConfigError

    (tmp_path / "secret").write_bytes(b"\xff" + PLANTED["file"].encode())
    with pytest.raises(ConfigError) as caught:
        default_lookup({})(Reference(kind="file", name=str(tmp_path / "secret")))
    assert leaks(chain(caught.value)) == []


def test_TH19_the_log_holds_no_exception_whose_hidden_context_has_a_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from mooring.config.logs import guard, logger
    from mooring.core.redact import Redactor

    redactor = Redactor([PLANTED["env"]])
    guard(redactor)
    try:
        try:
            raise ValueError(PLANTED["env"])
        except ValueError:
            raise RuntimeError("harmless") from None
    except RuntimeError:
        logger("mooring.test").exception("it failed")
    (record,) = caplog.records
    assert leaks(chain(record.exc_info[1] if record.exc_info else None)) == []
    assert "RuntimeError: harmless" in caplog.text


@pytest.fixture
def log_as_it_was() -> Iterator[None]:
    """`--verbose` sets up the log of the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("log_as_it_was")
def test_TH19_planted_secrets_leave_no_trace_in_what_the_commands_print(
    tmp_path: Path,
    planted: Callable[[str], dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"crash": planted("crash"), "chatty": planted("serve")}}))
    named = ["--config", str(file)]
    for words in (
        ["list", "--json", "--verbose"],
        ["doctor"],
        ["lock"],
        ["tools", "--json"],
        ["call", "mcp_chatty_say"],
        ["trust", "--yes", str(file)],
        ["check", "--json"],
    ):
        main([*words, *named])
        shown = capsys.readouterr()
        assert shown.out + shown.err
        assert leaks(shown.out + shown.err) == [], words
    lock = (tmp_path / "mooring.lock").read_text()
    assert "I know ***" in lock
    assert leaks(lock) == []


async def test_TH19_a_failing_callback_cannot_put_a_secret_into_the_log(
    hosting: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_ENV", PLANTED["env"])

    async def ask(request: object) -> bool:
        raise RuntimeError(f"cannot ask with {PLANTED['env']}")

    command, *args = demo.command("notes")
    server = ServerConfig(name="n", command=command, args=args, env={"X": "${PLANTED_ENV}"}, approve=["*"])
    async with hosting(server, on_approval=ask) as host:
        result = await host.call("mcp_n_list_notes")
    assert result.is_error
    assert "cannot ask with ***" in caplog.text
    assert leaks(caplog.text) == []


async def test_secrets_that_never_arrive_fail_that_server_in_time_and_block_no_other_server(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    release = threading.Event()
    monkeypatch.setitem(
        sys.modules, "keyring", SimpleNamespace(get_password=lambda *_: release.wait(30) and "")
    )
    command, *args = demo.command("notes")
    slow = ServerConfig(name="slow", command=command, env={"X": "${keyring:x}"}, connect_timeout=0.2)
    good = ServerConfig(name="good", command=command, args=args)
    async with hosting(slow, good) as host:
        states = {status.name: (status.state, status.error) for status in host.status()}
        assert states["good"] == ("connected", None)
        assert states["slow"][0] == "failed"
        assert "were not resolved within 0.2 s; check ${keyring:…}" in states["slow"][1]
        release.set()


async def test_TH20_a_child_gets_the_small_list_and_what_its_entry_names(
    hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.lab.stdio import lab_server

    monkeypatch.setenv("PLANTED_TOKEN", "must-not-be-passed-on")
    monkeypatch.setenv("WANTED", "inherited")
    monkeypatch.setenv("LD_PRELOAD", "")
    settings = {"env": {"OWN": "given"}, "inherit_env": ["WANTED"]}
    async with hosting(lab_server("lab", settings=settings, tools=["env"])) as host:
        seen = json.loads((await host.call("mcp_lab_env")).text)
    allowed = {
        "HOME",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TMPDIR",
        "TZ",
    }
    assert set(seen) - allowed == {"OWN", "WANTED", "MOORING_CHILD"}
