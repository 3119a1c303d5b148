"""What each command shows on a terminal and in a pipe, to the letter. JSON is in test_json.py."""

import json
import re

import pytest
from inline_snapshot import snapshot


def same_time(text: str) -> str:
    """The text with durations made equal."""
    text = re.sub(r" +down", "    down", re.sub(r" *\d+\.\d ms", "  N ms", text))
    return re.sub(r"(?<=next attempt in )[\d.]+ s", "N s", text)


def test_list_on_a_terminal(terminal, mixed_config) -> None:
    shown = terminal("--config", mixed_config, "list")
    assert shown.code == 0
    assert same_time(shown.text) == snapshot("""\
  NAME    STATE      TRANSPORT  PROTOCOL    TOOLS    FRESH
✗ broken  failed     stdio
    the server exited with code 1
    its last lines on stderr:
    broken: cannot read /etc/broken.conf: no such file
    next attempt in N s
✓ clock   connected  stdio      2026-07-28      2  ≤ 5 min
✓ notes   connected  stdio      2025-11-25      3  ≤ 5 min
- spare   disabled   stdio
""")


def test_list_on_a_terminal_of_40_columns(terminal, mixed_config) -> None:
    assert same_time(terminal("--config", mixed_config, "list", columns=40).text) == snapshot("""\
  NAME    STATE      TRANSPORT  TOOLS
✗ broken  failed     stdio
    the server exited with code 1
    its last lines on stderr:
    broken: cannot read
    /etc/broken.conf: no such file
    next attempt in N s
✓ clock   connected  stdio          2
✓ notes   connected  stdio          3
- spare   disabled   stdio
""")


def test_list_in_a_pipe(piped, mixed_config) -> None:
    done = piped("--config", mixed_config, "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert same_time(done.stdout) == snapshot("""\
  NAME    STATE      TRANSPORT  PROTOCOL    TOOLS    FRESH
✗ broken  failed     stdio
    the server exited with code 1
    its last lines on stderr:
    broken: cannot read /etc/broken.conf: no such file
    next attempt in N s
✓ clock   connected  stdio      2026-07-28      2  ≤ 5 min
✓ notes   connected  stdio      2025-11-25      3  ≤ 5 min
- spare   disabled   stdio
""")


def test_tools_on_a_terminal(terminal, mixed_config) -> None:
    shown = terminal("--config", mixed_config, "tools")
    assert shown.code == 0
    assert shown.text == snapshot("""\
warning: Server 'broken' is missing: the server exited with code 1; its last
lines on stderr: broken: cannot read /etc/broken.conf: no such file
clock
  mcp_clock_convert     Convert a time to another time zone.
  mcp_clock_now         The current time, and the process id of the server.
notes
  mcp_notes_list_notes  The titles of all notes.
  mcp_notes_read_note   Read one note.
  mcp_notes_write_note  Write or replace a note.
""")


def test_tools_on_a_terminal_of_40_columns(terminal, mixed_config) -> None:
    assert terminal("--config", mixed_config, "tools", "--quiet", columns=40).text == snapshot("""\
clock
  mcp_clock_convert
    Convert a time to another time zone.
  mcp_clock_now
    The current time, and the process id
    of the server.
notes
  mcp_notes_list_notes
    The titles of all notes.
  mcp_notes_read_note
    Read one note.
  mcp_notes_write_note
    Write or replace a note.
""")


def test_tools_in_a_pipe_are_lines_of_name_server_and_description(piped, mixed_config) -> None:
    done = piped("tools", "--config", mixed_config)
    assert done.stdout == snapshot("""\
mcp_clock_convert	clock	Convert a time to another time zone.
mcp_clock_now	clock	The current time, and the process id of the server.
mcp_notes_list_notes	notes	The titles of all notes.
mcp_notes_read_note	notes	Read one note.
mcp_notes_write_note	notes	Write or replace a note.
""")
    assert done.stderr.startswith(
        "warning: Server 'broken' is missing: the server exited with code 1; its last lines "
    )


@pytest.mark.parametrize(
    ("style", "names"),
    [
        ("mcp", ["mcp_clock_convert", "mcp_clock_now"]),
        ("double", ["mcp__clock__convert", "mcp__clock__now"]),
        ("server", ["clock_convert", "clock_now"]),
        ("raw", ["convert", "now"]),
    ],
)
def test_tools_of_one_server_in_each_style(ran, mixed_config, style: str, names: list[str]) -> None:
    done = ran("tools", "--server", "clock", "--style", style, "--config", mixed_config)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == names
    assert done.stderr == ""


def test_groups_on_a_terminal(terminal, mixed_config) -> None:
    assert terminal("groups", "--config", mixed_config, "--quiet").text == snapshot("""\
GROUP      TOOLS  DESCRIPTION
mcp:clock      2  The tools of MCP server `clock`.
mcp:notes      3  The tools of MCP server `notes`.
""")


def test_groups_in_a_pipe(ran, mixed_config) -> None:
    assert ran("groups", "--config", mixed_config, "--quiet").stdout == snapshot("""\
mcp:clock	2	The tools of MCP server `clock`.
mcp:notes	3	The tools of MCP server `notes`.
""")


def test_call_on_a_terminal(terminal, mixed_config) -> None:
    shown = terminal("call", "mcp_notes_read_note", "title=welcome", "--config", mixed_config)
    assert shown.code == 0
    assert shown.text == snapshot("A mooring holds many boats.\n")


def test_call_in_a_pipe(ran, mixed_config) -> None:
    done = ran(
        "call",
        "mcp_clock_convert",
        "time=2026-01-01T00:00:00+00:00",
        "offset_hours=2",
        "--config",
        mixed_config,
    )
    assert (done.returncode, done.stdout, done.stderr) == snapshot((0, "2026-01-01T02:00:00+02:00\n", ""))


def test_ping_on_a_terminal(terminal, mixed_config) -> None:
    shown = terminal("ping", "--config", mixed_config)
    assert shown.code == 1
    assert same_time(shown.text) == snapshot("""\
✗ broken    down
    the server exited with code 1
    its last lines on stderr:
    broken: cannot read /etc/broken.conf: no such file
✓ clock  N ms
✓ notes  N ms
""")


def test_ping_in_a_pipe(ran, mixed_config) -> None:
    done = ran("ping", "notes", "clock", "--config", mixed_config)
    assert (done.returncode, same_time(done.stdout), done.stderr) == snapshot(
        (
            0,
            """\
✓ clock  N ms
✓ notes  N ms
""",
            "",
        )
    )


def test_colour_appears_on_a_terminal_and_nowhere_else(terminal, piped, mixed_config) -> None:
    words = ["--config", mixed_config, "list"]
    assert "\x1b[32m" in terminal(*words).raw
    # Progress may move the cursor, as in \x1b[3A; it paints nothing.
    assert not re.search("\x1b\\[[0-9]+m", terminal(*words, NO_COLOR="1").raw)
    assert "\x1b" not in terminal(*words, TERM="dumb").raw
    assert "\x1b" not in piped(*words).stdout


def test_progress_shows_each_server_while_it_comes_up_and_then_goes_away(terminal, config) -> None:
    file = config({"clock": "clock", "silent": "silent"})
    shown = terminal("list", "--timeout", "2", "--config", file)
    drawn = shown.raw.split("\x1b[?25l")[1].split("\x1b[?25h")[0]
    assert re.search(r"✓\S* clock +\d\.\d s  2 tools", drawn)
    assert re.search(r"◌\S* silent  +\d\.\d s  starting", drawn)
    assert shown.text == snapshot("""\
  NAME    STATE      TRANSPORT  PROTOCOL    TOOLS    FRESH
✓ clock   connected  stdio      2026-07-28      2  ≤ 5 min
◌ silent  pending    stdio
""")


def test_quiet_shows_no_progress(terminal, config) -> None:
    shown = terminal("list", "-q", "--timeout", "0.5", "--config", config({"silent": "silent"}))
    assert "\x1b[?25l" not in shown.raw


def test_the_demo_fits_80_columns_and_shows_each_step(terminal) -> None:
    shown = terminal("demo")
    assert shown.code == 0
    story = re.sub(
        r"\d+\.\d+ s|\d+ ms|\d{4}-\d\d-\d\dT\S+|(?<=kill -9 )\d+|(?<=process \()\d+", "N", shown.text
    )
    first, last = story.index("  N  ✓"), story.index("All tools")
    assert sorted(re.findall(r"✓ (\w+)", story[first:last])) == ["clock", "notes", "weather"]
    assert story[last:] == snapshot("""\
All tools in one catalog:
  mcp_clock_convert     Convert a time to another time zone.
  mcp_clock_now         The current time, and the process id of the server.
  mcp_notes_list_notes  The titles of all notes.
  mcp_notes_read_note   Read one note.
  mcp_notes_write_note  Write or replace a note.
  mcp_weather_forecast  The weather in a city.

Calls are routed to the right server:
  mcp_weather_forecast city=Oslo
    → Oslo: -3 °C, snow  N
  mcp_notes_write_note title=packing text=a warm coat
    → Saved note: packing  N

A server is killed; the next call restarts it:
  mcp_clock_now
    → N  N
  kill -9 N
    → clock lost: the server was ended by signal 9
  mcp_clock_now
    → N  N
  answered by a new process (N)

Done in N. All processes have ended. With your own servers:
  mooring --config mcp.json list
""")


def test_the_demo_fits_50_columns(terminal) -> None:
    shown = terminal("demo", columns=50)
    first, last = shown.text.index("Starting five"), shown.text.index("  mcp_weather_forecast city")
    story = re.sub(r"\d+\.\d+ s", "N", shown.text[first:last])
    rows = re.split(r"\n(?=  N|\n|          ◌)", story)
    assert sorted(rows) == snapshot(
        [
            """\

All tools in one catalog:
  mcp_clock_convert     Convert a time to another…
  mcp_clock_now         The current time, and the…
  mcp_notes_list_notes  The titles of all notes.
  mcp_notes_read_note   Read one note.
  mcp_notes_write_note  Write or replace a note.
  mcp_weather_forecast  The weather in a city.\
""",
            """\

Calls are routed to the right server:
""",
            """\
          ◌ silent   has not answered yet; the
                     others do not wait for it\
""",
            """\
  N  ✓ clock    stdio, protocol 2026-07-28, 2
                     tools\
""",
            """\
  N  ✓ notes    stdio, protocol 2025-11-25, 3
                     tools\
""",
            """\
  N  ✓ weather  http, protocol 2026-07-28, 1
                     tool\
""",
            """\
  N  ✗ broken   the server exited with code 1
                     its last lines on stderr:
                     broken: cannot read
                     /etc/broken.conf: no such
                     file\
""",
            """\
Starting five servers at once: three that work,
one that hangs, one that crashes.\
""",
        ]
    )


def test_the_demo_in_a_pipe_is_the_same_without_colour(piped) -> None:
    done = piped("demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert re.sub(r"\d+\.\d+ s", "N s", done.stdout).splitlines()[-2:] == snapshot(
        [
            "Done in N s. All processes have ended. With your own servers:",
            "  mooring --config mcp.json list",
        ]
    )


def test_cost_on_a_terminal_of_50_columns(terminal, mixed_config) -> None:
    assert terminal("cost", "--config", mixed_config, "-q", columns=50).text == snapshot("""\
SERVER  TOOLS  TOKENS  SHARE
notes       3     144    51%
clock       2     138    49%
total       5     282   100%

by style        mcp 282, double 285, server 277,
                raw 270
with discovery  258 in the first prompt, 24 saved
discovery       not in use (auto, above 8,000
                tokens)
estimator       chars/4: four ASCII characters per
                token, others one token each
""")


def test_cost_in_a_pipe(ran, mixed_config) -> None:
    assert ran("cost", "--config", mixed_config, "-q").stdout == snapshot("""\
SERVER  TOOLS  TOKENS  SHARE
notes       3     144    51%
clock       2     138    49%
total       5     282   100%

by style        mcp 282, double 285, server 277, raw 270
with discovery  258 in the first prompt, 24 saved
discovery       not in use (auto, above 8,000 tokens)
estimator       chars/4: four ASCII characters per token, others one token each
""")


def test_eval_on_a_terminal(terminal, mixed_config, tmp_path) -> None:
    (tmp_path / "labelled.jsonl").write_text('{"text": "sing", "tools": ["clock/now"]}\n')
    shown = terminal("eval", "labelled.jsonl", "--misses", "--config", mixed_config, "-q", columns=50)
    assert (shown.code, shown.text) == snapshot(
        (
            0,
            """\
QUESTIONS  COUNT  RECALL@1  RECALL@5  RECALL@10
queries        1     0.000     0.000      0.000

sing
  wanted clock/now
  found nothing
""",
        )
    )


def test_doctor_on_a_terminal_of_50_columns(terminal, config) -> None:
    shown = terminal("doctor", "--trace", "t.log", "--config", config({"notes": "notes"}), columns=50)
    assert shown.text[shown.text.index("✓ notes") :] == snapshot("""\
✓ notes: connected: stdio, protocol 2025-11-25,
    3 tools
✓ all messages were written to t.log
✓ 1 server: 1 ok
""")
    # Nothing was broken by the terminal itself: each line is a finding or stands under one.
    assert all(line.startswith(("✓ ", "! ", "    ")) for line in shown.text.splitlines())


def test_completion_is_the_same_script_on_a_terminal_in_a_pipe_and_as_json(terminal, ran) -> None:
    script = ran("completion", "fish").stdout
    assert script == snapshot("""\
function __mooring_words
  mooring completion --words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c mooring -a '(__mooring_words)'
""")
    assert terminal("completion", "fish", columns=200).text == script
    assert json.loads(ran("completion", "fish", "--json").stdout) == {
        "shell": "fish",
        "script": script,
    }
