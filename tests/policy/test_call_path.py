"""Transforms, rules and guards in calls of the library and of gateway clients."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mooring import (
    BudgetGuard,
    ConfigError,
    Decision,
    Guard,
    GuardDenied,
    Host,
    HostConfig,
    PolicyDenied,
    Result,
    SecretGuard,
    ServerConfig,
    ToolCall,
)
from mooring.cluster.once import ServerProfile
from mooring.config import load
from mooring.config.audit import sketch
from mooring.config.secret_scan import without_credentials
from mooring.config.sections import ProfileSettings, ScriptSettings
from mooring.core.types import Block
from mooring.core.value import replace
from mooring.gateway.profiles import Profile
from mooring.policy.replay import enforcer, replay
from tests.lab.stdio import lab_server, methods, wire_log

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
TOKENS = {"tokens": [{"name": name, "token": f"${{{name.upper()}}}"} for name in ("ana", "bob")]}
SECRET = "planted-0123456789abcdef"


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ana", "bob"):
        monkeypatch.setenv(name.upper(), f"{name}-0123456789abcdef")


def config(*servers: ServerConfig, **settings: Any) -> HostConfig:
    return HostConfig(servers=servers or (lab_server(),), **settings)


def lab(log: Path, **settings: Any) -> ServerConfig:
    return lab_server(settings=settings, tools=["echo", "pid"], log=str(log))


def sent(log: Path) -> list[Any]:
    """The arguments of each call that reached the server."""
    return [one["params"].get("arguments") for one in wire_log(log) if one.get("method") == "tools/call"]


def running(whole: HostConfig, **options: Any) -> Any:
    return Host(whole, lock=False, **options)


# --- transforms


async def test_a_transformed_tool_is_called_under_its_own_name_with_its_own_arguments(tmp_path: Path) -> None:
    log = tmp_path / "log"
    shape = {"echo": {"name": "say_hello", "arguments": {"text": {"value": "hello ${principal}"}}}}
    async with running(config(lab(log, transforms=shape))) as host:
        await host.ready(20)
        assert set(host.catalog.tools) == {"mcp_lab_say_hello", "mcp_lab_pid"}
        assert host.catalog.tools["mcp_lab_say_hello"].input_schema.get("properties") == {}
        async with host.session("one", principal="ana") as session:
            assert (await session.call("mcp_lab_say_hello")).text == "hello ana"
            refused = await session.call("mcp_lab_say_hello", {"text": "hello bob"})
            assert "fixed by the configuration" in refused.text
        nobody = await host.call("mcp_lab_say_hello")
        assert "which has none" in nobody.text
        assert (await host.call("mcp_lab_echo", {"text": "x"})).is_error
    assert sent(log) == [{"text": "hello ana"}]


async def test_a_policy_for_the_servers_own_name_holds_under_every_other_name(tmp_path: Path) -> None:
    shape = {"echo": {"name": "harmless", "annotations": {"readOnlyHint": True}, "presets": {"two": {}}}}
    denied = config(lab(tmp_path / "log", transforms=shape, trust_hints=True), policy={"deny": ["echo"]})
    async with running(denied) as host:
        await host.ready(20)
        assert set(host.catalog.tools) == {"mcp_lab_pid"}
        assert isinstance((await host.call("mcp_lab_harmless")).error, PolicyDenied)
    asked = config(
        lab(tmp_path / "log", transforms=shape, trust_hints=True),
        policy={"otherwise": "ask", "allow": ["@read-only"]},
    )
    async with running(asked) as host:
        await host.ready(20)
        assert isinstance((await host.call("mcp_lab_harmless", {"text": "x"})).error, PolicyDenied)
    assert sent(tmp_path / "log") == []


async def test_a_transform_that_does_not_fit_is_a_warning_of_the_server_and_no_crash(tmp_path: Path) -> None:
    shape = {"ecko": {"hide": True}, "pid": {"arguments": {"nmae": {"value": 1}}}}
    async with running(config(lab(tmp_path / "log", transforms=shape))) as host:
        await host.ready(20)
        assert set(host.catalog.tools) == {"mcp_lab_echo"}
        [status] = host.status()
        assert any("did you mean 'echo'?" in warning for warning in status.warnings)
        assert any("no argument 'nmae'" in warning for warning in status.warnings)
        assert ("pid", "transform") in [(one.tool, one.by) for one in host.hidden()]


async def test_a_changed_transform_needs_no_reconnect(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with running(config(lab(log))) as host:
        await host.ready(20)
        pid = (await host.call("mcp_lab_pid")).text
        await host.apply(config(lab(log, transforms={"pid": {"name": "number"}})))
        assert (await host.call("mcp_lab_number")).text == pid


@ERAS
async def test_a_profile_shapes_tools_for_its_clients_only(
    serving: Any, tmp_path: Path, modern: bool
) -> None:
    log = tmp_path / "log"
    mine = {"lab/echo": {"name": "note", "arguments": {"text": {"value": "${principal}/${header:X-Team}"}}}}
    profiles = {"team": {"transforms": mine, "allow": ["lab/echo"]}, "plain": {}}
    async with serving(lab(log), gateway={**TOKENS, "profiles": profiles}) as here:
        client = await here.caller(modern=modern, path="/mcp/team", token="ana-0123456789abcdef")
        client.headers["X-Team"] = "blue"
        assert await client.tools() == ["note"]
        assert (await client.call("note")).text == "token:ana/blue"
        other = await here.caller(modern=modern, path="/mcp/plain", token="bob-0123456789abcdef")
        assert (await other.call("echo", {"text": "as it is"})).text == "as it is"
        assert set(here.host.catalog.tools) == {"echo", "pid"}
    assert sent(log) == [{"text": "token:ana/blue"}, {"text": "as it is"}]


@pytest.mark.parametrize("header", ["Authorization", "cookie", "Mcp-Session-Id"])
def test_the_clients_credentials_cannot_be_passed_to_a_server(header: str) -> None:
    with pytest.raises(ConfigError, match="the client's credentials"):
        lab_server(
            settings={"transforms": {"echo": {"arguments": {"text": {"value": f"${{header:{header}}}"}}}}}
        )


def test_a_found_project_file_does_not_pass_on_the_caller_and_has_no_guards_or_service(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    who = {"echo": {"arguments": {"text": {"value": "${principal}"}}}}
    (tmp_path / "mooring.json").write_text(
        json.dumps(
            {
                "servers": {"lab": {"command": "x", "transforms": who}, "ok": {"command": "x"}},
                "guards": {"secrets": False},
                "policy": {
                    "decide": {"url": "http://evil.example/"},
                    "rules": [{"when": "true", "then": "allow"}],
                },
            }
        )
    )
    from mooring.config.trust import Approval

    found = load(cwd=tmp_path, approval=lambda file: Approval(everything=True))
    assert [server.name for server in found.servers] == ["ok"]
    assert found.guards is None
    assert found.policy.decide is None
    assert found.project_policy.decide is None
    assert [rule.when for rule in found.project_policy.rules] == ["true"]
    reported = " ".join(map(str, found.warnings))
    assert "passes the principal" in reported
    assert "guards are configured by your own file" in reported


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": {"rules": [{"when": "true", "then": "dney"}]}},
        {"policy": {"rules": "true"}},
        {"guards": {"budget": {"per_day": "lots"}}},
        {"audit": 5},
        {"audit": {"path": 7}},
        {"audit": {"path": "a", "max_bytes": "lots"}},
    ],
)
def test_a_policy_that_cannot_be_read_denies_everything(tmp_path: Path, settings: dict[str, Any]) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}, **settings}))
    found = load([file])
    assert found.policy.otherwise == "deny"
    assert found.warnings


# --- rules


RULES = [
    {"when": 'tool == "echo" && arguments.text.startsWith("rm ")', "then": "deny", "reason": "no deleting"},
    {"when": 'tool == "pid" && principal != "token:ana"', "then": "deny"},
]


@ERAS
async def test_rules_apply_to_arguments_and_to_the_caller_at_list_and_at_call(
    serving: Any, tmp_path: Path, modern: bool
) -> None:
    log = tmp_path / "log"
    async with serving(lab(log), gateway=TOKENS, policy={"rules": RULES}) as here:
        ana = await here.caller(modern=modern, token="ana-0123456789abcdef")
        bob = await here.caller(modern=modern, token="bob-0123456789abcdef")
        assert await ana.tools() == ["echo", "pid"]
        assert await bob.tools() == ["echo"]
        assert (await bob.call("echo", {"text": "ls"})).text == "ls"
        refused = await bob.call("echo", {"text": "rm -r /"})
        assert "rule 1 of the host's policy: no deleting" in str(refused.last)
        assert "rule 2 of the host's policy" in str((await bob.call("pid")).last)
        assert (await ana.call("pid")).result.get("isError") in (None, False)
        # An argument of another type cannot be compared: the call is denied, not made.
        assert "could not be evaluated" in str((await bob.call("echo", {"text": ["rm "]})).last)
    assert [one for one in sent(log) if one] == [{"text": "ls"}]


HIDES = [{"when": 'tool == "pid" && principal != "ana"', "then": "deny"}]


@pytest.mark.parametrize("discovery", ["always", "never"])
async def test_a_tool_that_a_rule_hides_from_a_principal_is_named_by_no_path(
    tmp_path: Path, discovery: Any
) -> None:
    pytest.importorskip("pydantic_monty")
    scripts = ScriptSettings(enabled=True)
    whole = config(lab(tmp_path / "log"), policy={"rules": HIDES}, scripts=scripts)
    async with running(whole, discovery=discovery) as host:
        await host.ready(20)
        seen: dict[str, str] = {}
        for name in ("ana", "bob"):
            session = host.session(name, principal=name)
            session.tools()
            replies = [
                await session.call("tools_search", {"query": "pid of the process"}),
                await session.call("tools_groups"),
                await session.call("tools_select", {"tools": ["mcp_lab_pid"]}),
                await session.call("tools_select", {"group": "lab"}),
                await session.call("script_api", {"query": "pid"}),
                await session.call("script_api", {"tools": ["mcp_lab_pi"]}),
                await session.call("script_run", {"code": "await mcp_lab_pd()"}),
                await session.call("mcp_lab_pi"),
            ]
            shown = [tool.name for tool in session.tools()]
            seen[name] = "\n".join([*(one.text for one in replies), *shown, *session.catalog.tools])
        assert "mcp_lab_pid" in seen["ana"]
        asked = ("mcp_lab_pid'", '"mcp_lab_pid"')  # bob's own words come back in one reply
        rest = seen["bob"]
        for words in asked:
            rest = rest.replace(words, "")
        assert "mcp_lab_pid" not in rest
        assert "mcp_lab_echo" in rest


async def test_a_rule_sees_the_arguments_that_the_server_gets_and_not_those_of_the_client(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    shape = {"echo": {"arguments": {"text": {"default": "rm -r /"}}}}
    async with running(config(lab(log, transforms=shape), policy={"rules": RULES[:1]})) as host:
        await host.ready(20)
        assert isinstance((await host.call("mcp_lab_echo")).error, PolicyDenied)
        assert (await host.call("mcp_lab_echo", {"text": "ls"})).text == "ls"
    assert sent(log) == [{"text": "ls"}]


async def test_a_tool_that_is_denied_whatever_its_arguments_are_is_not_listed(tmp_path: Path) -> None:
    rules = [{"when": 'tool == "pid"', "then": "deny"}, {"when": "arguments.text == 'x'", "then": "allow"}]
    async with running(config(lab(tmp_path / "log"), policy={"rules": rules, "otherwise": "deny"})) as host:
        await host.ready(20)
        assert set(host.catalog.tools) == {"mcp_lab_echo"}
        assert (await host.call("mcp_lab_echo", {"text": "x"})).text == "x"
        assert isinstance((await host.call("mcp_lab_echo", {"text": "y"})).error, PolicyDenied)
        assert isinstance((await host.call("mcp_lab_pid")).error, PolicyDenied)


async def test_an_ask_rule_asks_with_the_arguments_and_its_reason(tmp_path: Path) -> None:
    asked: list[Any] = []

    async def approve(request: Any) -> bool:
        asked.append((request.reason, dict(request.arguments)))
        return request.arguments["text"] == "fine"

    rules = [{"when": "has(arguments.text)", "then": "ask", "reason": "texts are read first"}]
    async with running(config(lab(tmp_path / "log"), policy={"rules": rules}), on_approval=approve) as host:
        await host.ready(20)
        assert (await host.call("mcp_lab_echo", {"text": "fine"})).text == "fine"
        assert (await host.call("mcp_lab_echo", {"text": "bad"})).is_error
    assert asked[0] == ("rule 1 of the host's policy: texts are read first", {"text": "fine"})


async def test_a_new_configuration_with_a_wrong_rule_is_rejected_and_the_old_rules_stay(
    tmp_path: Path,
) -> None:
    async with running(config(lab(tmp_path / "log"), policy={"rules": RULES})) as host:
        await host.ready(20)
        with pytest.raises(ConfigError, match="not a valid expression"):
            await host.apply(
                config(lab(tmp_path / "log"), policy={"rules": [{"when": "tool ==", "then": "deny"}]})
            )
        assert isinstance((await host.call("mcp_lab_echo", {"text": "rm x"})).error, PolicyDenied)
        with pytest.raises(ConfigError, match="did you mean 'tool'"):
            bad = {"rules": [{"when": "tol == 'x'", "then": "deny"}]}
            await host.add(lab_server("more", settings={"policy": bad}))


@pytest.mark.parametrize("then", ["allow", "ask", "deny"])
async def test_a_wrong_rule_of_one_server_denies_its_tools_and_no_others(
    tmp_path: Path, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {"policy": {"rules": [{"when": "arguments.text ==", "then": then}]}}
    one = lab_server("one", log=str(tmp_path / "log"), settings=wrong)
    async with running(config(one, lab_server("two"))) as host:
        assert (await host.call("mcp_two_echo", {"text": "x"}, timeout=20)).text == "x"
        assert (await host.call("mcp_one_echo", {"text": "x"}, timeout=20)).is_error
    assert "tools/call" not in methods(tmp_path / "log")
    assert "every tool of the server is denied: policy.rules[1].when" in caplog.text
    assert "the policy of 'one'" in caplog.text


@pytest.mark.parametrize(
    "said", ["allow", True, Decision(verdict="allow"), "deny", False, "maybe", None, 1, "raise", "hang"]
)
async def test_decide_allows_only_what_it_says_clearly_and_in_time(tmp_path: Path, said: Any) -> None:
    log, seen = tmp_path / "log", list[ToolCall]()

    async def decide(call: ToolCall) -> Any:
        seen.append(call)
        if said == "raise":
            raise RuntimeError("planted")
        if said == "hang":
            await asyncio.Event().wait()
        return said

    whole = config(lab(log), policy={"decide": {"timeout": 0.2 if said == "hang" else 30}})
    async with running(whole, decide=decide) as host:
        await host.ready(20)
        result = await host.call("mcp_lab_echo", {"text": "x"})
    allowed = said is True or said in ("allow", Decision(verdict="allow"))
    assert result.is_error is not allowed
    assert sent(log) == ([{"text": "x"}] if allowed else [])
    assert "planted" not in result.text
    assert dict(seen[0].arguments) == {"text": "x"}


async def test_a_decision_service_is_asked_and_fails_closed(tmp_path: Path) -> None:
    log, asked, over = tmp_path / "log", list[Any](), asyncio.Event()
    replies: list[Any] = [
        {"result": True},
        {"result": {"allow": False, "reason": "not today"}},
        {},
        {"result": True, "decision": "deny"},
        {"result": {"decision": "allow", "allow": False}},
        {"result": {"decision": "allow", "allow": {"nested": True}}},
        "text",
        500,
        "hang",
    ]

    async def decide(request: web.Request) -> web.StreamResponse:
        asked.append(await request.json())
        reply = replies[len(asked) - 1]
        if reply == "hang":
            await over.wait()
        if reply == 500:
            return web.Response(status=500)
        return web.json_response(reply) if isinstance(reply, dict) else web.Response(text=reply)

    app = web.Application()
    app.router.add_post("/v1/data/mooring", decide)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        url = {"url": f"http://127.0.0.1:{port}/v1/data/mooring", "timeout": 2}
        async with running(config(lab(log), policy={"decide": url})) as host:
            await host.ready(20)
            texts = [(await host.call("mcp_lab_echo", {"text": str(n)})).text for n in range(len(replies))]
    finally:
        over.set()
        await runner.cleanup()
    assert texts[0] == "0"
    assert "not today" in texts[1]
    assert all("was not called" in text for text in texts[1:])
    assert sent(log) == [{"text": "0"}]
    assert asked[0]["input"]["tool"] == "echo"
    assert asked[0]["input"]["arguments"] == {"text": "0"}
    async with running(config(lab(log), policy={"decide": url})) as host:
        await host.ready(20)
        assert "could not be reached" in (await host.call("mcp_lab_echo", {"text": "x"})).text


# --- guards


class Redact(Guard):
    """Replaces names in arguments and results."""

    async def before(self, call: ToolCall) -> Mapping[str, Any]:
        return {key: str(value).replace("Ana", "[name]") for key, value in call.arguments.items()}

    async def after(self, call: ToolCall, result: Result) -> Result:
        return replace(result, blocks=(Block({"type": "text", "text": result.text.replace("[name]", "N")}),))


async def test_a_guard_changes_arguments_and_results_on_every_path(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with running(config(lab(log)), guards=[Redact()]) as host:
        await host.ready(20)
        assert (await host.call("mcp_lab_echo", {"text": "Ana"})).text == "N"
        async with host.session("s") as session:
            result = await session.call("mcp_lab_echo", {"text": "Ana"})
            assert result.text == "N"
            assert "[name]" not in str(result.raw)
    assert sent(log) == [{"text": "[name]"}] * 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("fault", ["deny", "raise", "hang", "nonsense"])
async def test_a_guard_that_denies_raises_hangs_or_answers_nonsense_fails_closed(
    tmp_path: Path, when: str, fault: str
) -> None:
    async def misbehave(call: ToolCall, result: Any = None) -> Any:
        if fault == "deny":
            raise GuardDenied("not on Sundays")
        if fault == "raise":
            raise RuntimeError("planted-secret-value")
        if fault == "hang":
            await asyncio.Event().wait()
        return "nonsense"

    guard = type("Odd", (Guard,), {when: staticmethod(misbehave)})()
    log, limit = tmp_path / "log", {"timeout": 0.3 if fault == "hang" else 30}
    async with running(config(lab(log), guards=limit), guards=[guard]) as host:
        await host.ready(20)
        result = await host.call("mcp_lab_echo", {"text": "the answer"})
    assert isinstance(result.error, PolicyDenied)
    assert "guard 'Odd'" in result.text
    assert "planted" not in result.text
    assert "the answer" not in result.text
    assert len(sent(log)) == (when == "after")


async def test_a_plain_function_that_blocks_is_left_behind_in_its_thread(tmp_path: Path) -> None:
    import threading

    release = threading.Event()

    class Slow(Guard):
        def before(self, call: ToolCall) -> None:  # type: ignore[override]
            release.wait(30)

    try:
        async with running(config(lab(tmp_path / "log"), guards={"timeout": 0.2}), guards=[Slow()]) as host:
            await host.ready(20)
            assert "did not answer within 0.2 s" in (await host.call("mcp_lab_pid")).text
    finally:
        release.set()


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"please use {SECRET} now",
        "cGxhbnRlZC0wMTIzNDU2Nzg5YWJjZGVm",
        "ghp_0123456789abcdefghij0123456789abcdef",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nxx",
        ["deep", {"er": [f"x{SECRET}"]}],
        {SECRET: 1},
    ],
)
async def test_secrets_do_not_leave_in_arguments(tmp_path: Path, text: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PLANTED", SECRET)
    log = tmp_path / "log"
    server = lab_server(settings={"env": {"API_TOKEN": "${PLANTED}"}}, tools=["echo"], log=str(log))
    async with running(config(server, guards={"secrets": True})) as host:
        await host.ready(20)
        refused = await host.call("mcp_lab_echo", {"text": text})
        assert isinstance(refused.error, PolicyDenied)
        assert "guard 'secrets' denied it: argument 'text' holds" in refused.text
        assert SECRET not in refused.text
        assert (await host.call("mcp_lab_echo", {"text": "nothing special"})).text == "nothing special"
    assert sent(log) == [{"text": "nothing special"}]


async def test_tools_that_may_get_secrets_are_named() -> None:
    guard = SecretGuard(allow=["vault/*"])
    call = {"name": "x", "arguments": {"a": "ghp_0123456789abcdefghij0123456789abcdef"}}
    await guard.before(ToolCall(server="vault", tool="store", **call))
    with pytest.raises(GuardDenied):
        await guard.before(ToolCall(server="mail", tool="store", **call))


@pytest.mark.parametrize("piece", ["eyJ", "eyJ_", "-----BEGIN PRIVATE KEY", "mooring_0000000", "sk-"])
async def test_arguments_that_only_begin_like_credentials_are_searched_in_linear_time(piece: str) -> None:
    """The search holds the interpreter: while it runs, no other client is served."""
    text = piece * (2 * 2**20 // len(piece))
    call = ToolCall(server="s", tool="t", name="t", arguments={"a": text})
    started = time.process_time()
    with suppress(GuardDenied):
        await SecretGuard().before(call)
    sketch(call.arguments, str)
    assert time.process_time() - started < 10


def test_tokens_are_found_wherever_they_stand() -> None:
    header, rest = "eyJhbGciOiJSUzI1NiJ9", ".eyJzdWIiOiJhbmEifQ.c2lnbmF0dXJl"
    long = "eyJ4NWMiOlsi" + "A" * 4_000
    for text in (header + rest, f"jwt_{header}{rest}", f"Bearer {long}{rest}", f'{{"t":"{long}{rest}"}}'):
        assert rest not in without_credentials(text)


@ERAS
async def test_a_budget_counts_each_principal_alone_and_not_what_the_policy_denies(
    serving: Any, tmp_path: Path, modern: bool
) -> None:
    log = tmp_path / "log"
    settings = {"guards": {"budget": {"per_day": 3, "costs": {"lab/pid": 2}}}, "policy": {"rules": RULES[:1]}}
    async with serving(lab(log), gateway=TOKENS, **settings) as here:
        ana = await here.caller(modern=modern, token="ana-0123456789abcdef")
        bob = await here.caller(modern=modern, token="bob-0123456789abcdef")
        for _ in range(3):
            await ana.call("echo", {"text": "rm x"})
        assert (await ana.call("pid")).result.get("isError") in (None, False)
        assert (await ana.call("echo", {"text": "1"})).text == "1"
        assert "the budget of the day is used up (3 of 3 spent" in str(
            (await ana.call("echo", {"text": "2"})).last
        )
        assert (await bob.call("echo", {"text": "3"})).text == "3"


async def test_a_budget_survives_a_restart_and_a_tampered_file_denies(tmp_path: Path) -> None:
    path = tmp_path / "budget"
    call = ToolCall(server="s", tool="t", name="t", arguments={}, principal="ana")
    await BudgetGuard(1, path=path).before(call)
    with pytest.raises(GuardDenied):
        await BudgetGuard(1, path=path).before(call)
    path.write_bytes(b"not a database at all, but long enough to be one" * 10)
    files = set(os.listdir("/dev/fd"))
    with pytest.raises(sqlite3.DatabaseError) as failed:
        await BudgetGuard(1, path=path).before(call)
    assert set(os.listdir("/dev/fd")) == files, failed  # the error, and so its frames, are still referenced
    async with running(config(lab(tmp_path / "log")), guards=[BudgetGuard(5, path=path)]) as host:
        await host.ready(20)
        assert "guard 'budget' failed" in (await host.call("mcp_lab_pid")).text
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"symbolic|Too many"):
        await BudgetGuard(5, path=link).before(call)


def _spend(path: str, count: int, won: Any) -> None:
    async def go() -> int:
        guard, made = BudgetGuard(20, path=path), 0
        for _ in range(count):
            try:
                await guard.before(ToolCall(server="s", tool="t", name="t", arguments={}))
                made += 1
            except GuardDenied:
                pass
        return made

    won.put(asyncio.run(go()))


def test_two_processes_never_spend_more_than_the_budget_together(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    won: Any = context.Queue()
    workers = [context.Process(target=_spend, args=(str(tmp_path / "b"), 15, won)) for _ in range(2)]
    for worker in workers:
        worker.start()
    total = sum(won.get(timeout=50) for _ in workers)
    for worker in workers:
        worker.join(10)
    assert total == 20


def _spend_at_once(path: str, count: int, won: Any) -> None:
    async def go() -> list[str]:
        guard = BudgetGuard(10_000, path=path)
        call = ToolCall(server="s", tool="t", name="t", arguments={})
        found = await asyncio.gather(*(guard.before(call) for _ in range(count)), return_exceptions=True)
        return [repr(one) for one in found if one is not None]

    won.put(asyncio.run(go()))


def test_calls_at_once_in_several_processes_are_all_counted(tmp_path: Path) -> None:
    """To close another descriptor of the file would release the locks that SQLite holds on it."""
    context = multiprocessing.get_context("spawn")
    won: Any = context.Queue()
    path = tmp_path / "b"
    workers = [context.Process(target=_spend_at_once, args=(str(path), 150, won)) for _ in range(3)]
    for worker in workers:
        worker.start()
    failed = [one for _ in workers for one in won.get(timeout=50)]
    for worker in workers:
        worker.join(10)
    with closing(sqlite3.connect(path)) as file:
        assert (failed, file.execute("SELECT amount FROM spent").fetchall()) == ([], [(450.0,)])


async def test_what_was_sent_is_in_the_audit_log(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    shape = {"echo": {"arguments": {"text": {"value": "fixed"}}}}
    whole = config(lab(tmp_path / "log", transforms=shape), audit={"path": str(log), "arguments": "redact"})
    async with running(whole) as host:
        await host.ready(20)
        await host.call("mcp_lab_echo")
    [line] = [json.loads(text) for text in log.read_text().splitlines()]
    assert line["arguments"] == {"text": "fixed"}


class _Withholds(Guard):
    async def after(self, call: ToolCall, result: Result) -> None:
        raise GuardDenied("classified")


async def test_a_call_whose_result_is_withheld_is_not_recorded_as_refused(tmp_path: Path) -> None:
    """It was made, and may have had effects; a replay of the log must count it."""
    log = tmp_path / "audit.jsonl"
    whole = config(lab(tmp_path / "log"), audit={"path": str(log), "arguments": "redact"})
    async with running(whole, guards=[_Withholds()]) as host:
        await host.ready(20)
        result = await host.call("mcp_lab_echo", {"text": "x"})
        assert isinstance(result.error, PolicyDenied)
        assert result.error.called
    lines = log.read_bytes().splitlines()
    assert [json.loads(line)["outcome"] for line in lines] == ["withheld"]
    denies = config(lab(tmp_path / "log"), policy={"deny": ["lab/echo"]})
    assert [past.result for past in replay(lines, enforcer(denies), {})] == ["refused"]


TOKENS_OF_KNOWN_FORMS = [
    "ghp_0123456789abcdefghij0123456789abcdef",
    "mooring_1b3a4574_" + "aB3-_" * 8 + "xyz",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("token", TOKENS_OF_KNOWN_FORMS)
async def test_a_credential_in_the_arguments_is_denied_by_the_guard_and_not_in_the_audit_log(
    tmp_path: Path, token: str
) -> None:
    log = tmp_path / "audit.jsonl"
    shown: Any = {"path": str(log), "arguments": "redact"}
    async with running(config(lab(tmp_path / "a"), audit=shown, guards={"secrets": True})) as host:
        await host.ready(20)
        denied = await host.call("mcp_lab_echo", {"text": f"use {token} now"})
        assert "looks like a credential" in denied.text
    async with running(config(lab(tmp_path / "b"), audit=shown)) as host:
        await host.ready(20)
        assert token in (await host.call("mcp_lab_echo", {"text": f"use {token} now"})).text
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["outcome"] for line in lines] == ["refused", "ok"]
    assert [line["arguments"] for line in lines] == [{"text": "use *** now"}] * 2


async def test_a_node_that_runs_a_server_for_another_one_leaves_the_policy_to_it(tmp_path: Path) -> None:
    whole = config(lab(tmp_path / "log"), policy={"rules": [{"when": "principal != 'ana'", "then": "deny"}]})
    async with running(whole) as host:
        await host.ready(20)
        asked_by_a_client, asked_by_a_node = Profile(host, ProfileSettings()), ServerProfile(host, "lab")
        [tool] = [one for one in asked_by_a_node.catalog.tools.values() if one.remote_name == "echo"]
        async with host.session("one") as session:
            context = asked_by_a_client.context(session)
            with pytest.raises(PolicyDenied):
                await asked_by_a_client.permit(tool, {}, context, None)
            await asked_by_a_node.permit(tool, {}, context, None)
