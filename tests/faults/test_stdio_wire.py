"""FA09-FA21: faults of a running child: its pipes, its responses and our memory."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mooring import CallTimeout, ConnectionLost, Host
from tests.lab.stdio import cue, lab_server, methods, starts, wire_log
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

MIB = 2**20
OK = b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":[{"type":"text","text":"fine"}]}}\n'


@contextmanager
def _held_within(limit: int) -> Iterator[None]:
    """Fails when Python holds at any moment more than `limit` bytes beyond what it holds now."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        rise = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert rise < limit, f"{rise / MIB:.1f} MiB were held"


async def _alive(host: Host) -> bool:
    return (await host.call("mcp_lab_echo", {"text": "alive"}, timeout=5)).text == "alive"


def _dropped(host: Host) -> int:
    return host.provider("lab").supervisor.live.channel.dropped


async def test_FA09_a_call_that_hangs_is_cancelled_once_and_a_late_answer_is_dropped(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    server = lab_server(tools=["sleep", "echo"], log=str(log), settings={"call_timeout": 0.3})
    async with hosting(server) as host:
        result = await host.call("mcp_lab_sleep", {"seconds": 30})
        assert isinstance(result.error, CallTimeout)
        assert 0.3 <= result.duration < 2
        assert await _alive(host)
        assert methods(log).count("notifications/cancelled") == 1
        assert len(starts(log)) == 1


async def test_FA09_progress_without_end_is_cut_at_the_absolute_deadline(hosting: Any) -> None:
    server = lab_server(tools=["sleep"], progress=True, settings={"idle_timeout": 0.2, "call_timeout": 0.6})
    async with hosting(server) as host:
        result = await host.call("mcp_lab_sleep", {"seconds": 30})
        assert isinstance(result.error, CallTimeout)
        assert 0.6 <= result.duration < 3


async def test_FA10_every_call_under_way_is_resolved_when_the_server_dies(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    async with hosting(lab_server(tools=["sleep", "crash", "echo"], log=str(log))) as host:
        sleeping = [asyncio.create_task(host.call("mcp_lab_sleep", {"seconds": 30})) for _ in range(10)]
        await until(lambda: methods(log).count("tools/call") == 10)
        await host.call("mcp_lab_crash")
        results = await asyncio.wait_for(asyncio.gather(*sleeping), 5)
        assert {type(result.error) for result in results} == {ConnectionLost}
        assert await _alive(host)


@pytest.mark.parametrize(
    "noise",
    [
        b"Starting server v1.2\n",
        b"\n\r\n  \n",
        b"\x1b[32mINFO\x1b[0m ready\n",
        b"[1, 2, 3]\n",
        b'"text"\n7\nnull\ntrue\n',
        b"{broken\n",
        b'{"no": "message"}\n',
    ],
)
async def test_FA13_noise_on_stdout_is_passed_over_and_counted(noise: bytes, hosting: Any) -> None:
    async with hosting(lab_server(tools=["say", "echo"])) as host:
        assert (await host.call("mcp_lab_say", cue(noise))).text == "said"
        assert (_dropped(host) > 0) == bool(noise.strip())
        assert await _alive(host)


async def test_FA13_ten_thousand_lines_of_noise_before_an_answer_and_the_first_three_are_kept(
    hosting: Any,
) -> None:
    async with hosting(lab_server(tools=["say", "echo"])) as host:
        assert (await host.call("mcp_lab_say", cue(b"noise\n", times=10_000))).text == "said"
        assert _dropped(host) == 10_000
        assert len(host.provider("lab").supervisor.live.channel.noise) == 3


@pytest.mark.parametrize("rubbish", [b"\xff\xfe\xfa\n", b'{"jsonrpc":"2.0","id":@ID@,"resu\xc3\x28\n'])
async def test_FA14_invalid_utf8_between_messages_is_passed_over(rubbish: bytes, hosting: Any) -> None:
    async with hosting(lab_server(tools=["say", "echo"])) as host:
        assert (await host.call("mcp_lab_say", cue(rubbish))).text == "said"
        assert await _alive(host)


async def test_FA14_invalid_utf8_inside_an_answer_becomes_replacement_characters(hosting: Any) -> None:
    async with hosting(lab_server(tools=["say", "echo"])) as host:
        broken = cue(OK.replace(b"fine", b"a\xffb\xed\xa0\x80c"), then="silence")
        text = (await host.call("mcp_lab_say", broken)).text
        assert text.startswith("a�b")
        assert text.endswith("c")
        text.encode()  # nothing in it that could not be written again
        assert await _alive(host)


async def test_FA14_half_a_surrogate_in_an_escape_becomes_a_replacement_character(hosting: Any) -> None:
    async with hosting(lab_server(tools=["say", "echo"])) as host:
        broken = cue(OK.replace(b"fine", rb"a\ud800b"), then="silence")
        assert (await host.call("mcp_lab_say", broken)).text == "a�b"


async def test_FA15_a_message_of_16_MiB_is_read_in_linear_time_and_memory(hosting: Any) -> None:
    size = 16 * MIB - 1000
    async with hosting(lab_server(tools=["big", "echo"])) as host:
        with _held_within(4 * 16 * MIB):
            assert len((await host.call("mcp_lab_big", {"size": size}, timeout=30, budget=0)).text) == size


async def test_FA15_one_beyond_the_limit_resets_the_connection_and_names_the_limit(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    server = lab_server(tools=["big", "echo"], log=str(log), settings={"max_message": 2 * MIB})
    async with hosting(server) as host:
        with _held_within(3 * 2 * MIB):
            result = await host.call("mcp_lab_big", {"size": 32 * MIB}, timeout=30)
        assert isinstance(result.error, ConnectionLost)
        assert "max_message" in result.text
        assert str(2 * MIB) in result.text
        assert await _alive(host)
        assert len(starts(log)) == 2


async def test_FA16_a_line_without_end_is_cut_at_the_limit(hosting: Any) -> None:
    settings = {"max_message": 2 * MIB, "shutdown_grace": 0.1}
    async with hosting(lab_server(tools=["say", "echo"], settings=settings)) as host:
        with _held_within(3 * 2 * MIB):
            endless = cue(b"x" * 4096, times=10_000, then="silence")
            result = await host.call("mcp_lab_say", endless, timeout=30)
        assert "max_message" in result.text
        assert await _alive(host)


@pytest.mark.parametrize(
    "answer",
    [
        b"[" * 100_000 + b"\n",
        b"[" + OK.strip() + b"]\n",
        OK.replace(b"@ID@", b"999999"),
        OK.replace(b"@ID@", b'"no such id"'),
        OK.replace(b"@ID@", b"null"),
        OK.replace(b"@ID@", b"1.5"),
        OK.replace(b"@ID@", b"true"),
        OK.replace(b"@ID@", b"[1]"),
        OK.replace(b"@ID@", b'"' + b"7" * 5000 + b'"'),
        OK.replace(b"@ID@", b"7" * 5000),
    ],
    ids=["brackets", "batch", "foreign", "text", "null", "float", "bool", "list", "long", "huge"],
)
async def test_FA17_a_response_with_an_unknown_id_never_extends_a_call_past_its_deadline(
    answer: bytes, hosting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosting(lab_server(tools=["say", "echo"])) as host:
        result = await host.call("mcp_lab_say", cue(answer, then="silence"), timeout=0.4)
        assert isinstance(result.error, CallTimeout)
        assert _dropped(host) >= 1
        assert await _alive(host)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_FA18_an_id_that_comes_back_as_text_is_the_same_id(hosting: Any) -> None:
    async with hosting(lab_server(tools=["say"])) as host:
        answer = cue(OK.replace(b"@ID@", b'"@ID@"'), then="silence")
        assert (await host.call("mcp_lab_say", answer, timeout=5)).text == "fine"


async def test_FA18_the_first_of_several_answers_counts_and_the_others_are_counted(hosting: Any) -> None:
    async with hosting(lab_server(tools=["say", "echo"])) as host:
        answers = cue(OK + OK.replace(b"fine", b"late") * 3, then="silence")
        assert (await host.call("mcp_lab_say", answers)).text == "fine"
        assert await _alive(host)
        assert _dropped(host) == 3


async def test_FA18_result_and_error_together_are_an_error(hosting: Any) -> None:
    both = b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":[]},"error":{"code":-32000,"message":"no"}}\n'
    async with hosting(lab_server(tools=["say"])) as host:
        result = await host.call("mcp_lab_say", cue(both, then="silence"))
        assert result.is_error
        assert "no" in result.text


@pytest.mark.parametrize(
    "number",
    [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"-1E+400",
        b"1e0400",
        b"9" * 5000,
        b"9" * 400 + b".5",
        b"9" * 250 + b"e99",
    ],
)
async def test_FA18_a_number_that_json_has_no_word_for_never_comes_out_again(
    number: bytes, hosting: Any
) -> None:
    structured = b'"structuredContent":{"deep":[{"value":' + number + b',"kept":1.5}]},"content"'
    async with hosting(lab_server(tools=["say"])) as host:
        answer = cue(OK.replace(b'"content"', structured), then="silence")
        result = await host.call("mcp_lab_say", answer, timeout=5)
        assert not result.is_error
        assert result.structured == {"deep": [{"value": None, "kept": 1.5}]}
        json.dumps(result.structured, allow_nan=False)


async def test_FA18_numbers_beyond_reason_are_no_numbers(hosting: Any) -> None:
    huge = b"9" * 400
    token = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":@ID@,"progress":'
    progress = token + huge + b"}}\n" + token + b'1,"total":' + huge + b"}}\n"
    listed = b'{"jsonrpc":"2.0","id":@ID@,"result":{"tools":[{"name":"say"}],"ttlMs":' + huge + b"}}\n"
    server = lab_server(tools=["say"], cues={"tools/list": cue(listed, then="silence")})
    async with hosting(server) as host:
        assert host.status()[0].state == "connected"
        assert (await host.call("mcp_lab_say", cue(progress))).text == "said"


async def test_TH30_progress_and_cancellations_of_requests_that_are_not_its_own_have_no_effect(
    hosting: Any,
) -> None:
    heard: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    def notice(method: bytes, params: bytes) -> bytes:
        return b'{"jsonrpc":"2.0","method":"notifications/' + method + b'","params":{' + params + b"}}\n"

    foreign = b"".join(
        notice(b"progress", b'"progressToken":' + token + b',"progress":13')
        + notice(b"cancelled", b'"requestId":' + token)
        for token in (
            b"-1",
            b"99999",
            b'"x"',
            b"null",
            b"true",
            b"1.5",
            b"{}",
            b"[]",
            b'"' + b"9" * 400 + b'"',
        )
    )
    own = notice(b"progress", b'"progressToken":@ID@,"progress":7')
    # A notice that cancels a request of ours is not the server's to send: it has to answer.
    wrong = notice(b"cancelled", b'"requestId":@ID@')
    async with hosting(lab_server(tools=["say", "sleep"]), lab_server("other", tools=["sleep"])) as host:
        beside = asyncio.ensure_future(
            host.call("mcp_other_sleep", {"seconds": 0.3}, on_progress=on_progress)
        )
        result = await host.call("mcp_lab_say", cue(foreign + wrong + own), on_progress=on_progress)
        assert result.text == "said"
        assert not (await beside).is_error
        assert heard == [7]


async def test_FA19_an_output_that_is_closed_is_a_death_and_the_process_is_ended(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    server = lab_server(tools=["say", "echo"], log=str(log), settings={"shutdown_grace": 0.1})
    async with hosting(server) as host:
        result = await host.call("mcp_lab_say", cue(then="mute"))
        assert isinstance(result.error, ConnectionLost)
        assert await _alive(host)
        first, second = starts(log)
        assert first != second
        await until(lambda: not Path(f"/proc/{first}").exists())


async def test_FA20_a_child_that_does_not_read_costs_its_own_calls_only(hosting: Any) -> None:
    deaf = lab_server("deaf", tools=["say", "echo"], settings={"shutdown_grace": 0.1})
    async with hosting(deaf, lab_server()) as host:
        gone = asyncio.create_task(host.call("mcp_deaf_say", cue(then="deaf"), timeout=5))
        big = asyncio.create_task(host.call("mcp_deaf_echo", {"text": "x" * MIB}, timeout=0.5))
        results = await asyncio.gather(*(host.call("mcp_lab_echo", {"text": "x"}) for _ in range(50)))
        assert not any(result.is_error for result in results)
        result = await big
        assert isinstance(result.error, CallTimeout)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)


async def test_FA20_a_child_that_asks_without_reading_the_answers_is_ended_within_bounded_memory(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    settings = {"max_message": 64 * 1024, "shutdown_grace": 0.1}
    pings = b"".join(b'{"jsonrpc":"2.0","id":"p%d","method":"ping"}\n' % n for n in range(100))
    async with hosting(lab_server(tools=["say", "echo"], log=str(log), settings=settings)) as host:
        with _held_within(8 * MIB):
            flood = cue(pings, times=1000, then="deaf")
            result = await host.call("mcp_lab_say", flood, timeout=20)
        assert isinstance(result.error, ConnectionLost)
        assert "does not read" in result.text
        assert await _alive(host)
        assert len(starts(log)) == 2


async def test_FA21_a_flood_on_stderr_is_drained_and_bounded(hosting: Any) -> None:
    async with hosting(lab_server(tools=["shout", "crash", "echo"])) as host:
        with _held_within(2 * MIB):
            assert (await host.call("mcp_lab_shout", {"size": 30 * MIB}, timeout=20)).text == "shouted"
        assert await _alive(host)
        lost = await host.call("mcp_lab_crash")
        assert "crashing on purpose" in lost.text
        assert len(lost.text) < 64 * 1024


async def test_FA45_requests_that_were_never_offered_are_refused_by_code(
    tmp_path: Path, hosting: Any
) -> None:
    log = tmp_path / "log"
    ask = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": f"ask-{n}", "method": method, "params": {}}).encode() + b"\n"
        for n, method in enumerate(["sampling/createMessage", "roots/list", "elicitation/create", "x/y"])
    )
    async with hosting(lab_server(tools=["say", "echo"], log=str(log))) as host:
        assert (await host.call("mcp_lab_say", cue(ask))).text == "said"
        await until(lambda: sum("error" in entry for entry in wire_log(log)) == 4)
        answers = {entry["id"]: entry["error"]["code"] for entry in wire_log(log) if "error" in entry}
        assert answers == {f"ask-{n}": -32601 for n in range(4)}
        assert await _alive(host)


async def test_FA45_a_burst_of_requests_is_answered_one_by_one(tmp_path: Path, hosting: Any) -> None:
    log = tmp_path / "log"
    pings = b"".join(b'{"jsonrpc":"2.0","id":"p%d","method":"ping"}\n' % n for n in range(200))
    async with hosting(lab_server(tools=["say", "echo"], log=str(log))) as host:
        assert (await host.call("mcp_lab_say", cue(pings))).text == "said"
        await until(lambda: sum("result" in entry or "error" in entry for entry in wire_log(log)) == 200)
        assert await _alive(host)
