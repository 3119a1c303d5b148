"""`mooring search`, `cost` and `eval`: finding a tool, the tokens of all tools, the quality of the search."""

import json
from pathlib import Path
from typing import Any

import pytest
from dirty_equals import IsFloat, IsPartialDict
from inline_snapshot import snapshot


def document(done) -> Any:
    return json.loads(done.stdout)


@pytest.fixture
def pair(config) -> str:
    return config({"notes": "notes", "clock": "clock"})


# --- search


def test_search_on_a_terminal(terminal, pair) -> None:
    shown = terminal("search", "write", "a", "note", "--config", pair)
    assert shown.code == 0
    assert shown.text == snapshot("""\
mcp_notes_write_note  Write or replace a note.
mcp_notes_list_notes  The titles of all notes.
mcp_notes_read_note   Read one note.
""")


def test_search_in_a_pipe_is_lines_of_name_server_score_and_description(ran, pair) -> None:
    [line] = ran("search", "read note", "--limit", "1", "--config", pair).stdout.splitlines()
    name, server, score, description = line.split("\t")
    assert (name, server, description) == ("mcp_notes_read_note", "notes", "Read one note.")
    assert float(score) > 0


def test_search_as_json(ran, pair) -> None:
    found = document(ran("search", "other zone", "--style", "double", "--json", "--config", pair))
    assert found[0] == {
        "name": "mcp__clock__convert",
        "server": "clock",
        "score": IsFloat(gt=0),
        "description": "Convert a time to another time zone.",
    }
    assert [hit["score"] for hit in found] == sorted((hit["score"] for hit in found), reverse=True)


def test_a_search_that_finds_nothing_says_so(ran, pair) -> None:
    done = ran("search", "xylophone", "--config", pair)
    assert (done.returncode, done.stdout) == (0, "")
    assert "No tool matches" in done.stderr


@pytest.mark.parametrize("limit", ["0", "-1", "many", "²"])
def test_a_limit_that_is_none_is_exit_code_2(ran, limit: str) -> None:
    done = ran("search", "x", f"--limit={limit}")
    assert done.returncode == 2
    assert "expected a positive integer" in done.stderr


# --- cost


def test_cost_on_a_terminal(terminal, pair) -> None:
    assert terminal("cost", "--config", pair).text == snapshot("""\
SERVER  TOOLS  TOKENS  SHARE
notes       3     144    51%
clock       2     138    49%
total       5     282   100%

by style        mcp 282, double 285, server 277, raw 270
with discovery  258 in the first prompt, 24 saved
discovery       not in use (auto, above 8,000 tokens)
estimator       chars/4: four ASCII characters per token, others one token each
""")


def test_cost_of_each_tool_in_a_pipe(ran, pair) -> None:
    assert ran("cost", "--tools", "--config", pair).stdout == snapshot("""\
TOKENS  SHARE  TOOL
    76    27%  mcp_clock_convert
    64    23%  mcp_notes_write_note
    62    22%  mcp_clock_now
    47    17%  mcp_notes_read_note
    33    12%  mcp_notes_list_notes
   282   100%  total

by style        mcp 282, double 285, server 277, raw 270
with discovery  258 in the first prompt, 24 saved
discovery       not in use (auto, above 8,000 tokens)
estimator       chars/4: four ASCII characters per token, others one token each
""")


def test_cost_as_json(ran, pair) -> None:
    report = document(ran("cost", "--json", "--config", pair))
    assert report == snapshot(
        {
            "estimator": "chars/4",
            "style": "mcp",
            "total": 282,
            "servers": [
                {
                    "name": "clock",
                    "tokens": 138,
                    "tools": [
                        {"name": "mcp_clock_convert", "tokens": 76},
                        {"name": "mcp_clock_now", "tokens": 62},
                    ],
                },
                {
                    "name": "notes",
                    "tokens": 144,
                    "tools": [
                        {"name": "mcp_notes_list_notes", "tokens": 33},
                        {"name": "mcp_notes_read_note", "tokens": 47},
                        {"name": "mcp_notes_write_note", "tokens": 64},
                    ],
                },
            ],
            "styles": {"mcp": 282, "double": 285, "server": 277, "raw": 270},
            "discovery": {"used": False, "mode": "auto", "budget": 8000, "first_prompt": 258, "saved": 24},
        }
    )
    assert report["total"] == sum(server["tokens"] for server in report["servers"])
    assert report["styles"][report["style"]] == report["total"]


def test_tools_that_are_always_shown_count_in_the_first_prompt(ran, config) -> None:
    plain = document(ran("cost", "--json", "--config", config({"notes": "notes"})))["discovery"]
    always = {"bundled": "notes", "always": ["read_*"]}
    report = document(ran("cost", "--json", "--config", config({"notes": always})))
    tokens = {tool["name"]: tool["tokens"] for tool in report["servers"][0]["tools"]}
    assert report["discovery"]["first_prompt"] == plain["first_prompt"] + tokens["mcp_notes_read_note"]


# --- eval


def test_eval_of_the_configured_servers(ran, pair, tmp_path: Path) -> None:
    questions = [
        {"text": "write a note", "tools": ["notes/write_note"]},
        {"text": "read one note", "tools": ["mcp_notes_read_note", "clock/sing"]},
    ]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, questions)))
    done = ran("eval", str(file), "--limit", "2", "--misses", "--config", pair)
    assert (done.returncode, done.stdout) == snapshot(
        (
            0,
            """\
QUESTIONS  COUNT  RECALL@1  RECALL@2  RECALL@5  RECALL@10
queries        2     0.750     0.750     0.750      0.750

read one note
  wanted mcp_notes_read_note; clock/sing
  found mcp_notes_read_note, mcp_notes_list_notes, mcp_notes_write_note
""",
        )
    )
    assert done.stderr == snapshot(
        "warning: No tool is named 'clock/sing'. These questions count as missed.\n"
    )
    file.write_text(json.dumps({"queries": questions}))
    assert document(ran("eval", str(file), "--json", "--config", pair)) == {
        "tools": 5,
        "results": [{"questions": "queries", "count": 2, "recall": {"1": 0.75, "5": 0.75, "10": 0.75}}],
    }


def test_eval_of_a_file_that_brings_its_own_tools_needs_no_servers(ran, tmp_path: Path) -> None:
    schema = {"type": "object"}
    tools = [
        {"id": "t1", "server": "files", "name": "read", "description": "Read a file", "inputSchema": schema},
        {"id": "t2", "server": "mail", "name": "send", "description": "Send mail", "inputSchema": schema},
    ]
    labelled = {
        "tools": tools,
        "steps": [{"text": "send mail", "gold": [["mail/send", "nothing"]]}],
        "tasks": [{"text": "read a file", "gold": [["t1"], ["t2"]]}],
    }
    file = tmp_path / "labelled.json"
    file.write_text(json.dumps(labelled))
    assert document(ran("eval", str(file), "--json"))["results"] == [
        IsPartialDict(questions="steps", recall={"1": 1.0, "5": 1.0, "10": 1.0}),
        IsPartialDict(questions="tasks", recall={"1": 0.5, "5": 0.5, "10": 0.5}),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no questions found"),
        ("{}", "no questions found"),
        ("7", "no questions found"),
        ('{"queries": [7]}', "queries[0] must be an object"),
        ('{"queries": [{"text": "x"}]}', "queries[0] must have a 'text'"),
        ('{"queries": [{"text": "x", "tools": [7]}]}', "queries[0]: the tools must be names"),
        ('{"text": "x", "tools": ["a"]}\nnot json', "line 2: is neither JSON nor JSON lines"),
        ('{"tools": [{"name": "a"}], "tasks": [{"text": "x", "tools": ["a"]}]}', "must have a 'server'"),
    ],
)
def test_a_labelled_file_of_another_shape_is_exit_code_2(ran, tmp_path, text: str, message: str) -> None:
    (tmp_path / "labels").write_text(text)
    done = ran("eval", "labels")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_labelled_file_that_is_not_there_is_exit_code_2(ran) -> None:
    done = ran("eval", "none.json")
    assert done.returncode == 2
    assert "none.json: cannot be read" in done.stderr
