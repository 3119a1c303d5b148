"""`mooring call` on results that are more than text."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.lab.stdio import COMMAND

PIXEL = base64.b64encode(bytes(range(250))).decode()
NASTY = "\x1b[2J\x1b]8;;http://evil\x07gone\u202e\x9b31m\x07"


def lab(**script: Any) -> dict[str, Any]:
    return {
        "command": COMMAND[0],
        "args": [*COMMAND[1:], json.dumps({"tools": ["raw", "big", "sleep"]} | script)],
    }


def raw(*content: dict[str, Any], **more: Any) -> list[str]:
    return ["call", "mcp_lab_raw", "--args", json.dumps({"result": {"content": list(content), **more}})]


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_pictures_and_sounds_are_saved_and_named(ran, config, kind: str, tmp_path: Path) -> None:
    block = {"type": kind, "data": PIXEL, "mimeType": f"{kind}/png"}
    done = ran(*raw({"type": "text", "text": "see:"}, block), "--config", config({"lab": lab()}))
    found = re.fullmatch(
        rf"see:\n\[{kind.capitalize()} \({kind}/png\), 250 bytes, saved as (.*)\]\n", done.stdout
    )
    assert found, done.stdout
    assert Path(found[1]).read_bytes() == base64.b64decode(PIXEL)
    assert Path(found[1]).is_relative_to(tmp_path)


def test_json_holds_the_picture_itself(ran, config, tmp_path: Path) -> None:
    block = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    done = ran(*raw(block), "--json", "--config", config({"lab": lab()}))
    document = json.loads(done.stdout)
    assert list(document) == ["server", "tool", "is_error", "text", "structured", "content", "duration_ms"]
    assert document["content"] == [block]
    assert list(tmp_path.rglob("mcp-blobs/*")) == []


def test_all_of_a_large_output_is_shown(ran, config) -> None:
    file = config({"lab": lab()})
    assert ran("call", "mcp_lab_big", "size=300000", "--config", file).stdout == "x" * 300_000 + "\n"
    assert (
        len(json.loads(ran("call", "mcp_lab_big", "size=300000", "--json", "--config", file).stdout)["text"])
        == 300_000
    )


def test_a_link_is_shown_and_left_alone(ran, config) -> None:
    link = {"type": "resource_link", "uri": "file:///etc/passwd", "name": "x"}
    done = ran(*raw(link), "--config", config({"lab": lab()}))
    assert done.stdout == "[resource_link file:///etc/passwd]\n"


def test_data_alone_is_json(ran, config) -> None:
    done = ran(
        "call", "mcp_lab_raw", 'result:={"structuredContent": {"a": [1]}}', "--config", config({"lab": lab()})
    )
    assert json.loads(done.stdout) == {"a": [1]}


def test_TH23_nothing_raw_of_any_block_reaches_a_terminal(terminal, config) -> None:
    blocks = (
        {"type": "text", "text": NASTY},
        {"type": "image", "data": "!", "mimeType": NASTY},
        {"type": "resource_link", "uri": NASTY, "name": NASTY},
        {"type": "resource", "resource": {"uri": NASTY, "mimeType": NASTY, "text": NASTY}},
        {"type": "resource", "resource": {"uri": NASTY, "blob": "////"}},
        {"type": NASTY},
    )
    file = config({"lab": lab()})
    for words in (raw(*blocks), raw(*blocks, structuredContent={NASTY: NASTY}), raw(*blocks, isError=True)):
        shown = terminal(*words, "--config", file, NO_COLOR="1", TERM="dumb")
        assert "gone" in shown.text
        assert not set(shown.raw) & set("\x1b\x07\u202e\x9b"), repr(shown.raw)


def test_progress_is_a_bar_that_goes_away(terminal, config) -> None:
    file = config({"lab": lab(progress=True)})
    shown = terminal("call", "mcp_lab_sleep", "seconds=0.3", "--config", file)
    assert re.search(r"█*░+ +\d+% step \d+", shown.raw)
    assert shown.text == "slept\n"
    quiet = terminal("call", "mcp_lab_sleep", "seconds=0.3", "--config", file, "--quiet")
    assert "░" not in quiet.raw


def test_progress_is_silent_in_a_pipe(ran, config) -> None:
    done = ran("call", "mcp_lab_sleep", "seconds=0.1", "--config", config({"lab": lab(progress=True)}))
    assert (done.stdout, done.stderr) == ("slept\n", "")
