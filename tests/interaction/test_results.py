"""Processing of results, with a real server that returns scripted responses."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring import Host, HostConfig, LocalTools, ServerConfig
from mooring.core.text import estimate
from mooring.core.types import Result
from mooring.host import runtime_of
from tests.lab.stdio import cue, lab_server, wire_log

pytestmark = pytest.mark.anyio

PIXEL = base64.b64encode(bytes(range(250))).decode()
RAW = "mcp_lab_raw"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home" / "mooring"


def raw(**script: Any) -> ServerConfig:
    return lab_server(tools=["raw", "big", "meta", "say"], **script)


def block(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


async def answered(host: Host, *content: dict[str, Any], **more: Any) -> Result:
    return await host.call(RAW, {"result": {"content": list(content), **more}})


# --- conversion -------------------------------------------------------------------------------------


async def test_every_kind_of_content_becomes_what_a_model_can_use(hosting: Any, home: Path) -> None:
    link = block("resource_link", uri="file:///etc/passwd", name="passwd")
    picture = block("image", data=PIXEL, mimeType="image/png")
    sound = block("audio", data=PIXEL, mimeType="audio/wav")
    embedded = {"uri": "notes:1", "mimeType": "text/plain", "text": "a note"}
    binary = {"uri": "pdf:1", "mimeType": "application/pdf", "blob": PIXEL}
    async with hosting(raw()) as host:
        result = await answered(
            host,
            block("text", text="first"),
            picture,
            sound,
            link,
            block("resource", resource=embedded),
            block("resource", resource=binary),
            block("text", text="last"),
        )
    (file,) = (home / "mcp-blobs").iterdir()
    assert file.read_bytes() == base64.b64decode(PIXEL)
    assert result.content == [
        block("text", text="first"),
        picture,
        sound,
        link,
        block("text", text="[Resource notes:1 (text/plain), 6 characters:]\na note"),
        block("text", text=f"[Resource pdf:1 (application/pdf), 250 bytes, saved as {file}]"),
        block("text", text="last"),
    ]
    assert (result.server, result.tool, result.is_error, result.handle) == ("lab", "raw", False, None)


async def test_without_a_home_nothing_is_written(tmp_path: Path, hosting: Any) -> None:
    binary = {"uri": "pdf:1", "mimeType": "application/pdf", "blob": PIXEL}
    async with hosting(raw(), home=None, lock=False) as host:
        result = await answered(host, block("resource", resource=binary))
        large = await host.call("mcp_lab_big", {"size": 300_000})
        rest = await host.call("result_read", {"handle": large.handle})
    assert "no directory is configured" in result.text
    assert rest.blocks[0].text == "x" * len(rest.blocks[0].text or "")
    assert list(tmp_path.rglob("mcp-*")) == []


async def test_structured_content_is_data_and_is_shown_once(hosting: Any) -> None:
    async with hosting(raw()) as host:
        both = await answered(host, block("text", text='{"a": 1}'), structuredContent={"a": 1})
        alone = await answered(host, structuredContent={"a": [1, "é"]})
        said = await answered(host, block("text", text="It is one."), structuredContent={"a": 1})
    assert (both.text, both.structured) == ('{"a": 1}', {"a": 1})
    assert (alone.text, alone.structured) == ('{"a":[1,"é"]}', {"a": [1, "é"]})
    assert (said.text, said.structured) == ("It is one.", {"a": 1})


# --- output schemas ---------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def promising(**settings: Any) -> ServerConfig:
    definition = {"name": "raw", "inputSchema": {"type": "object"}, "outputSchema": SCHEMA}
    return lab_server(tools=[], definitions=[definition], settings=settings)


async def broken(host: Host) -> Result:
    return await answered(host, block("text", text="kept"), structuredContent={"n": "one"})


async def test_FA42_a_broken_output_schema_is_logged_and_the_result_stands(
    hosting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "mooring.results"):
        async with hosting(promising()) as host:
            result = await broken(host)
            await broken(host)
    assert (result.text, result.structured, result.is_error) == ("kept", {"n": "one"}, False)
    assert caplog.messages == [
        "result does not match its output schema tool=lab/raw problem=$.n: 'one' is not of type 'integer'"
    ]


async def test_FA42_strict_makes_it_an_error_that_keeps_the_text(hosting: Any) -> None:
    async with hosting(promising(output_schema="strict")) as host:
        result = await broken(host)
        good = await answered(host, block("text", text="fine"), structuredContent={"n": 1})
        missing = await answered(host, block("text", text="nothing"))
        failed = await answered(host, block("text", text="it failed"), isError=True)
    assert result.is_error
    assert result.text.split("\n") == [
        "kept",
        "[This does not match the output schema of lab/raw: $.n: 'one' is not of type 'integer']",
    ]
    assert result.structured == {"n": "one"}
    assert not good.is_error
    assert missing.is_error
    assert failed.text == "it failed"


async def test_off_looks_at_no_schema(hosting: Any, caplog: pytest.LogCaptureFixture) -> None:
    config = HostConfig(servers=(promising(),), output_schema="off")
    async with Host(config) as host:
        await host.ready(20)
        assert not (await broken(host)).is_error
    assert caplog.messages == []


# --- the budget -------------------------------------------------------------------------------------


async def whole_of(host: Any, handle: str | None) -> str:
    """What `result_read` gives, piece by piece."""
    offset: int | None = 0
    read: list[str] = []
    while offset is not None:
        piece = await host.call("result_read", {"handle": handle, "offset": offset})
        assert not piece.is_error, piece.text
        assert estimate(piece.text) <= 25_000
        read.append(piece.blocks[0].text or "")
        offset = piece.structured["next_offset"]
    return "".join(read)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{number}: a line of the log\n" for number in range(20_000)),
        "né 中 🚢\r\n" * 30_000,
        json.dumps({"items": [{"n": number} for number in range(30_000)]}),
        "x" * 1_000_000,
    ],
    ids=["lines", "every width", "one long line", "one long word"],
)
async def test_an_output_above_the_budget_is_a_preview_and_a_handle_to_all_of_it(
    text: str, hosting: Any
) -> None:
    async with hosting(raw()) as host:
        result = await answered(host, block("text", text=text))
        assert estimate(result.text) <= 25_000
        assert estimate(result.text) > 20_000
        assert f"Read them with result_read, handle {result.handle}.]" in result.text
        assert result.text[:30] == text[:30]
        assert result.text[-10:] == text[-10:]
        assert await whole_of(host, result.handle) == text


async def test_an_output_within_the_budget_is_shown_whole(hosting: Any) -> None:
    async with hosting(raw()) as host:
        result = await host.call("mcp_lab_big", {"size": 100_003})
        assert (len(result.text), result.handle) == (100_003, None)
        over = await host.call("mcp_lab_big", {"size": 100_004})
        assert over.handle is not None


async def test_the_budget_is_the_callers_or_the_servers_or_the_hosts(hosting: Any) -> None:
    small = raw(settings={"result_budget": 200})
    async with hosting(small) as host:
        assert estimate((await host.call("mcp_lab_big", {"size": 5000})).text) <= 200
        assert len((await host.call("mcp_lab_big", {"size": 5000}, budget=0)).text) == 5000
        assert len((await host.call("mcp_lab_big", {"size": 5000}, budget=2000)).text) == 5000
        tiny = await host.call("mcp_lab_big", {"size": 5000}, budget=1)
        assert tiny.handle is not None
        assert tiny.handle in tiny.text


async def test_parts_are_found_by_search_and_by_path(hosting: Any) -> None:
    value = {"items": [{"name": f"item {number}"} for number in range(20_000)]}
    async with hosting(raw()) as host:
        handle = (await answered(host, structuredContent=value)).handle
        by_path = await host.call("result_read", {"handle": handle, "json_path": "items[19999].name"})
        by_text = await host.call("result_read", {"handle": handle, "grep": "item 12345"})
        large = await host.call("result_read", {"handle": handle, "json_path": "items"})
    assert by_path.blocks[0].text == "item 19999"
    assert "item 12345" in by_text.text
    assert estimate(large.text) <= 25_000
    assert large.structured["next_offset"] == len(large.blocks[0].text)


async def test_an_answer_of_result_read_says_where_it_is_and_whose_words_these_are(hosting: Any) -> None:
    async with hosting(raw()) as host:
        handle = (await host.call("mcp_lab_big", {"size": 200_000})).handle
        piece = await host.call("result_read", {"handle": handle, "offset": 199_990, "limit": 20})
        beyond = await host.call("result_read", {"handle": handle, "offset": 200_001})
    assert piece.text == "xxxxxxxxxx\n[Characters 199,990 to 200,000 of 200,000 of lab/big. End.]"
    assert (piece.server, piece.structured["total"]) == ("mooring", 200_000)
    assert beyond.is_error
    assert "the text has 200,000 characters" in beyond.text


async def test_a_handle_belongs_to_its_session_and_outlives_the_object(hosting: Any) -> None:
    async with hosting(raw()) as host:
        async with host.session("alice") as alice:
            handle = (await alice.call("mcp_lab_big", {"size": 200_000})).handle
        stranger = await host.session("bob").call("result_read", {"handle": handle})
        shared = await host.call("result_read", {"handle": handle})
        again = await host.session("alice").call("result_read", {"handle": handle, "limit": 5})
    assert (stranger.is_error, shared.is_error, again.is_error) == (True, True, False)
    assert stranger.text == "this session has no result with this handle; use the handle exactly as given"


async def test_result_read_is_offered_at_the_end_once_there_is_something_to_read(hosting: Any) -> None:
    async with hosting(raw()) as host:
        session = host.session("a")
        before = [tool.name for tool in session.tools()]
        await session.call("mcp_lab_big", {"size": 200_000})
        after = [tool.name for tool in session.tools()]
        runtime_of(host).builder.put(LocalTools(late, name="late").snapshot)
        later = [tool.name for tool in session.tools()]
        assert [tool.name for tool in host.session("b").tools()] == sorted([*before, "mcp_late_late"])
    assert after == [*before, "result_read"]
    assert later == [*after, "mcp_late_late"]


def late() -> str:
    """Comes later."""
    return "late"


async def test_the_error_of_a_server_is_within_the_budget_too(hosting: Any) -> None:
    error = {"jsonrpc": "2.0", "id": "@ID@", "error": {"code": -32000, "message": "E" * 300_000}}
    line = json.dumps(error).replace('"@ID@"', "@ID@").encode() + b"\n"
    async with hosting(raw()) as host:
        result = await host.call("mcp_lab_say", cue(line, then="silence"))
    assert result.is_error
    assert estimate(result.text) <= 25_000
    assert result.handle is not None


async def test_files_of_a_session_are_gone_when_the_host_is(hosting: Any, home: Path) -> None:
    async with hosting(raw()) as host:
        await host.call("mcp_lab_big", {"size": 200_000})
        assert len(list((home / "mcp-outputs").iterdir())) == 1
    assert list((home / "mcp-outputs").iterdir()) == []


# --- who calls, and what is recorded ----------------------------------------------------------------


async def _meta(host: Host) -> dict[str, Any]:
    session = host.session("chat-42", agent_id="ana")
    return json.loads((await session.call("mcp_lab_meta")).text)


async def test_servers_learn_the_caller_only_if_configured(hosting: Any) -> None:
    async with hosting(raw()) as host:
        assert not {"agent_id", "session_id"} & (await _meta(host)).keys()
    async with hosting(raw(settings={"context": {"passthrough": True}})) as host:
        reported = await _meta(host)
        assert (reported["agent_id"], reported["session_id"]) == ("ana", "chat-42")
    everybody = HostConfig(servers=(raw(),), context={"passthrough": True})  # pyright: ignore
    async with Host(everybody) as host:
        assert (await _meta(host))["session_id"] == "chat-42"
    but_one = HostConfig(
        servers=(raw(settings={"context": {"passthrough": False}}),), context={"passthrough": True}
    )  # pyright: ignore
    async with Host(but_one) as host:
        assert "session_id" not in await _meta(host)


async def test_nothing_but_the_arguments_is_sent(hosting: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with hosting(raw(era="legacy", log=str(log))) as host:
        await host.session("private-session", agent_id="ana").call("mcp_lab_big", {"size": 1})
    (sent,) = [entry for entry in wire_log(log) if entry.get("method") == "tools/call"]
    assert sent["params"].keys() == {"name", "arguments", "_meta"}
    trace = {"traceparent", "tracestate"}  # where an application, or another test, traces
    assert sent["params"]["_meta"].keys() - trace == {"progressToken"}
    assert "private-session" not in log.read_text()


async def test_every_call_leaves_a_record_without_secrets(
    hosting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_TOKEN", "s3cret-token")
    server = raw(settings={"env": {"TOKEN": "${LAB_TOKEN}"}})
    async with hosting(server, artifacts=tmp_path / "run") as host:
        session = host.session("chat", agent_id="ana")
        await session.call(RAW, {"result": {"content": [block("text", text="the s3cret-token is")]}})
        await session.call("mcp_lab_big", {"size": 200_000})
        await session.call("mcp_lab_nothing")
    files = sorted((tmp_path / "run").iterdir())
    records = [json.loads(file.read_text()) for file in files]
    assert [file.name for file in files] == [f"call-{number:06}.json" for number in (1, 2, 3)]
    assert "s3cret" not in "".join(file.read_text() for file in files)
    assert records[0]["content"] == [block("text", text="the *** is")]
    assert records[0]["arguments"]["result"]["content"][0]["text"] == "the *** is"
    assert (records[1]["server"], records[1]["tool"], records[1]["arguments"]) == (
        "lab",
        "big",
        {"size": 200_000},
    )
    assert len(records[1]["content"][0]["text"]) == 200_000, "the record holds all of it"
    assert (records[2]["error"], records[2]["is_error"]) == ("UnknownTool", True)
    assert {"session_id": "chat", "agent_id": "ana"}.items() <= records[0].items()
    assert records[0]["duration_ms"] > 0


async def test_a_directory_that_takes_no_records_costs_the_record_and_not_the_call(
    hosting: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    async with hosting(raw(), artifacts=tmp_path / "file" / "run") as host:
        assert (await host.call("mcp_lab_big", {"size": 3})).text == "xxx"
    assert "could not be written" in caplog.text


# --- hostile results --------------------------------------------------------------------------------


async def test_TH26_a_hundred_thousand_blocks_are_one_preview(hosting: Any) -> None:
    text = ",".join('{"type":"text","text":"x"}' for _ in range(50_000))
    links = ",".join('{"type":"resource_link","uri":"a:b","name":"n"}' for _ in range(50_000))
    line = f'{{"jsonrpc":"2.0","id":@ID@,"result":{{"content":[{text},{links}]}}}}\n'.encode()
    async with hosting(raw()) as host:
        result = await host.call("mcp_lab_say", cue(line, then="silence"))
        assert estimate(result.text) <= 25_000
        assert len(result.blocks) == 1
        assert result.text.startswith("x\nx\n")
        whole = await whole_of(host, result.handle)
    assert whole.count('{"type":"resource_link","uri":"a:b","name":"n"}') == 50_000


async def test_hostile_bytes_are_a_result_all_the_same(hosting: Any) -> None:
    content = (
        rb'[{"type":"text","text":"\ud800 \xff \u202e \u001b[2J"},'
        rb'{"type":"image","data":"!!","mimeType":"image/png"},'
        rb'{"type":"resource","resource":{"uri":"../../../etc/cron.d/x","blob":"////"}},'
        rb'{"type":"resource_link","uri":"file:///etc/passwd","name":"../x"}]'
    ).replace(rb"\xff", b"\xff")
    line = b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":' + content + b"}}\n"
    async with hosting(raw()) as host:
        result = await host.call("mcp_lab_say", cue(line, then="silence"))
    assert not result.is_error
    result.text.encode()  # can be sent on
    assert [block.type for block in result.blocks] == ["text", "text", "text", "resource_link"]
    assert "root:" not in json.dumps(result.content)


async def test_TH22_nothing_is_written_outside_the_store(hosting: Any, tmp_path: Path, home: Path) -> None:
    names = ["../../x", "/tmp/x", "a/b", "..", "x\x00y", "~/x"]
    resources = [{"uri": name, "mimeType": name, "name": name, "blob": "////"} for name in names]
    async with hosting(raw(), lock=False) as host:
        result = await answered(host, *(block("resource", resource=entry) for entry in resources))
    written = {path.parent for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {home / "mcp-blobs"}
    assert result.text.count("saved as") == len(names)


def child(code: str) -> str:
    """What a fresh process prints that runs `code` around a host."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MEMORY = """
import asyncio, resource, sys
sys.path.insert(0, ".")
from mooring import Host
from tests.lab.stdio import cue, lab_server

CAP = {cap}

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

async def main():
    server = lab_server(tools=["echo", "big"], settings={{"max_message": CAP, "call_timeout": 40.0}})
    async with Host([server]) as host:
        await host.ready(20)
        await host.call("mcp_lab_big", {{"size": 200_000}})
        before = peak()
        result = await host.call("mcp_lab_big", {{"size": {size}}})
        print(result.is_error, result.handle is not None, len(result.text) < 101_000, (peak() - before) / CAP)

asyncio.run(main())
"""


def test_TH26_a_message_above_the_cap_is_cut_on_the_wire() -> None:
    error, handle, _, share = child(MEMORY.format(cap=16 * 2**20, size=300 * 10**6)).split()
    assert (error, handle) == ("True", "False")
    assert float(share) < 3


def test_TH26_a_huge_text_under_a_raised_cap_takes_less_than_three_times_the_cap() -> None:
    error, handle, short, share = child(MEMORY.format(cap=64 * 2**20, size=60 * 10**6)).split()
    assert (error, handle, short) == ("False", "True", "True")
    assert float(share) < 3


FULL = """
import asyncio, resource, signal, sys
sys.path.insert(0, ".")
from mooring import Host
from tests.lab.stdio import lab_server

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
blob = {"type": "resource", "resource": {"uri": "a:b", "blob": "////" * 5000}}

async def main():
    async with Host([lab_server(tools=["raw", "big"])], lock=False) as host:
        await host.ready(20)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        saved = await host.call("mcp_lab_raw", {"result": {"content": [blob]}})
        print("could not be saved" in saved.text)
        large = await host.call("mcp_lab_big", {"size": 200_000})
        rest = await host.call("result_read", {"handle": large.handle, "offset": 199_999})
        print(rest.text[0])

asyncio.run(main())
"""


def test_a_full_disk_costs_the_file_and_the_rest_is_read_from_memory() -> None:
    assert child(FULL).split() == ["True", "x"]


async def test_a_home_that_cannot_be_written_costs_the_file_alone(hosting: Any, tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("in the way")
    binary = {"uri": "a:b", "blob": "////"}
    async with hosting(raw(), home=tmp_path / "blocked", lock=False) as host:
        result = await answered(host, block("text", text="read me"), block("resource", resource=binary))
        large = await host.call("mcp_lab_big", {"size": 200_000})
        assert await whole_of(host, large.handle) == "x" * 200_000
    assert result.blocks[0].text == "read me"
    assert "it could not be saved: Not a directory" in result.text


async def test_what_the_applications_own_tools_return_is_within_the_budget_too() -> None:
    def long_story() -> str:
        return "once upon a time\n" * 20_000

    async with Host(local=[long_story]) as host:
        result = await host.call("long_story")
        assert estimate(result.text) <= 25_000
        assert await whole_of(host, result.handle) == long_story()


async def test_a_failed_call_can_still_be_raised(hosting: Any) -> None:
    from mooring import CallError

    async with hosting(promising(output_schema="strict")) as host:
        with pytest.raises(CallError, match="does not match the output schema of lab/raw"):
            await host.call(RAW, {"result": {"content": [], "structuredContent": {"n": "x"}}}, check=True)
