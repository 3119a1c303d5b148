"""What each command shows on a terminal and in a pipe, to the letter. JSON is in test_json.py."""

import json
import re

import pytest
from inline_snapshot import snapshot


def same_time(text: str) -> str:
    """The text with durations made equal."""
    return re.sub(r"(?<=next try in )[\d.]+ s", "N s", re.sub(r" *\d+\.\d ms", "  N ms", text))


def test_list_on_a_terminal(terminal, fleet) -> None:
    shown = terminal("--config", fleet, "list")
    assert shown.code == 0
    assert same_time(shown.text) == snapshot("""\
  NAME    STATE      TRANSPORT  PROTOCOL    TOOLS    FRESH
✗ broken  failed     stdio
    the server exited with code 1
    its last lines on stderr:
    broken: cannot read /etc/broken.conf: no such file
    next try in N s
✓ clock   connected  stdio      2026-07-28      2  ≤ 5 min
✓ notes   connected  stdio      2025-11-25      3  ≤ 5 min
- spare   disabled   stdio
""")


def test_list_on_a_terminal_of_40_columns(terminal, fleet) -> None:
    assert same_time(terminal("--config", fleet, "list", columns=40).text) == snapshot("""\
  NAME    STATE      TRANSPORT  TOOLS
✗ broken  failed     stdio
    the server exited with code 1
    its last lines on stderr:
    broken: cannot read
    /etc/broken.conf: no such file
    next try in N s
✓ clock   connected  stdio          2
✓ notes   connected  stdio          3
- spare   disabled   stdio
""")


def test_list_in_a_pipe(piped, fleet) -> None:
    done = piped("--config", fleet, "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert same_time(done.stdout) == snapshot("""\
  NAME    STATE      TRANSPORT  PROTOCOL    TOOLS    FRESH
✗ broken  failed     stdio
    the server exited with code 1
    its last lines on stderr:
    broken: cannot read /etc/broken.conf: no such file
    next try in N s
✓ clock   connected  stdio      2026-07-28      2  ≤ 5 min
✓ notes   connected  stdio      2025-11-25      3  ≤ 5 min
- spare   disabled   stdio
""")


def test_tools_on_a_terminal(terminal, fleet) -> None:
    shown = terminal("--config", fleet, "tools")
    assert shown.code == 0
    assert shown.text == snapshot("""\
warning: broken is missing: the server exited with code 1; its last lines on
stderr: broken: cannot read /etc/broken.conf: no such file
clock
  mcp_clock_convert     The same moment in another zone.
  mcp_clock_now         The current time, and which process tells it.
notes
  mcp_notes_list_notes  The titles of all notes.
  mcp_notes_read_note   Read one note.
  mcp_notes_write_note  Write a note, or replace it.
""")


def test_tools_on_a_terminal_of_40_columns(terminal, fleet) -> None:
    assert terminal("--config", fleet, "tools", "--quiet", columns=40).text == snapshot("""\
clock
  mcp_clock_convert
    The same moment in another zone.
  mcp_clock_now
    The current time, and which process
    tells it.
notes
  mcp_notes_list_notes
    The titles of all notes.
  mcp_notes_read_note
    Read one note.
  mcp_notes_write_note
    Write a note, or replace it.
""")


def test_tools_in_a_pipe_are_lines_of_name_server_and_description(piped, fleet) -> None:
    done = piped("tools", "--config", fleet)
    assert done.stdout == snapshot("""\
mcp_clock_convert	clock	The same moment in another zone.
mcp_clock_now	clock	The current time, and which process tells it.
mcp_notes_list_notes	notes	The titles of all notes.
mcp_notes_read_note	notes	Read one note.
mcp_notes_write_note	notes	Write a note, or replace it.
""")
    assert done.stderr.startswith(
        "warning: broken is missing: the server exited with code 1; its last words "
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
def test_tools_of_one_server_in_each_style(ran, fleet, style: str, names: list[str]) -> None:
    done = ran("tools", "--server", "clock", "--style", style, "--config", fleet)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == names
    assert done.stderr == ""


def test_groups_on_a_terminal(terminal, fleet) -> None:
    assert terminal("groups", "--config", fleet, "--quiet").text == snapshot("""\
GROUP      TOOLS  DESCRIPTION
mcp:clock      2  The tools of MCP server `clock`.
mcp:notes      3  The tools of MCP server `notes`.
""")


def test_groups_in_a_pipe(ran, fleet) -> None:
    assert ran("groups", "--config", fleet, "--quiet").stdout == snapshot("""\
mcp:clock	2	The tools of MCP server `clock`.
mcp:notes	3	The tools of MCP server `notes`.
""")


def test_call_on_a_terminal(terminal, fleet) -> None:
    shown = terminal("call", "mcp_notes_read_note", "title=welcome", "--config", fleet)
    assert shown.code == 0
    assert shown.text == snapshot("A mooring holds many boats.\n")


def test_call_in_a_pipe(ran, fleet) -> None:
    done = ran(
        "call", "mcp_clock_convert", "time=2026-01-01T00:00:00+00:00", "offset_hours=2", "--config", fleet
    )
    assert (done.returncode, done.stdout, done.stderr) == snapshot((0, "2026-01-01T02:00:00+02:00\n", ""))


def test_ping_on_a_terminal(terminal, fleet) -> None:
    shown = terminal("ping", "--config", fleet)
    assert shown.code == 1
    assert same_time(shown.text) == snapshot("""\
✗ broken    down
    the server exited with code 1
    its last lines on stderr:
    broken: cannot read /etc/broken.conf: no such file
✓ clock  N ms
✓ notes  N ms
""")


def test_ping_in_a_pipe(ran, fleet) -> None:
    done = ran("ping", "notes", "clock", "--config", fleet)
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


def test_colour_appears_on_a_terminal_and_nowhere_else(terminal, piped, fleet) -> None:
    words = ["--config", fleet, "list"]
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


def test_the_demo_fits_80_columns_and_tells_the_whole_story(terminal) -> None:
    shown = terminal("demo")
    assert shown.code == 0
    story = re.sub(
        r"\d+\.\d+ s|\d+ ms|\d{4}-\d\d-\d\dT\S+|(?<=kill -9 )\d+|(?<=process, )\d+", "N", shown.text
    )
    first, last = story.index("  N  ✓"), story.index("Their tools")
    assert sorted(re.findall(r"✓ (\w+)", story[first:last])) == ["clock", "notes", "weather"]
    assert story[last:] == snapshot("""\
Their tools are one catalog.
  mcp_clock_convert     The same moment in another zone.
  mcp_clock_now         The current time, and which process tells it.
  mcp_notes_list_notes  The titles of all notes.
  mcp_notes_read_note   Read one note.
  mcp_notes_write_note  Write a note, or replace it.
  mcp_weather_forecast  The weather in a city.

A call finds its server.
  mcp_weather_forecast city=Oslo
    → Oslo: -3 °C, snow  N
  mcp_notes_write_note title=packing text=a warm coat
    → Noted: packing  N

A server dies; the next call brings it back.
  mcp_clock_now
    → N  N
  kill -9 N
    → clock lost: the server was ended by signal 9
  mcp_clock_now
    → N  N
  answered by a new process, N

Done in N, and every process has ended. With your own servers:
  mooring --config mcp.json list
""")


def test_the_demo_fits_50_columns(terminal) -> None:
    shown = terminal("demo", columns=50)
    first, last = shown.text.index("Five"), shown.text.index("  mcp_weather_forecast city")
    story = re.sub(r"\d+\.\d+ s", "N", shown.text[first:last])
    rows = re.split(r"\n(?=  N|\n|          ◌)", story)
    assert sorted(rows) == snapshot(
        [
            """\

A call finds its server.
""",
            """\

Their tools are one catalog.
  mcp_clock_convert     The same moment in anothe…
  mcp_clock_now         The current time, and whi…
  mcp_notes_list_notes  The titles of all notes.
  mcp_notes_read_note   Read one note.
  mcp_notes_write_note  Write a note, or replace…
  mcp_weather_forecast  The weather in a city.\
""",
            """\
          ◌ silent   has not said a word yet;
                     nobody waits for it\
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
Five servers start at once: three good ones, one
that hangs, one that crashes.\
""",
        ]
    )


def test_the_demo_in_a_pipe_is_the_same_without_colour(piped) -> None:
    done = piped("demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert re.sub(r"\d+\.\d+ s", "N s", done.stdout).splitlines()[-2:] == snapshot(
        [
            "Done in N s, and every process has ended. With your own servers:",
            "  mooring --config mcp.json list",
        ]
    )


def test_cost_on_a_terminal_of_50_columns(terminal, fleet) -> None:
    assert terminal("cost", "--config", fleet, "-q", columns=50).text == snapshot("""\
SERVER  TOOLS  TOKENS  SHARE
notes       3     146    52%
clock       2     135    48%
total       5     281   100%

by style        mcp 281, double 283, server 276,
                raw 268
with discovery  258 in the first prompt: saves 23
discovery       not in use (auto, from 8,000
                tokens on)
estimator       chars/4: four ASCII characters a
                token, others one each
""")


def test_cost_in_a_pipe(ran, fleet) -> None:
    assert ran("cost", "--config", fleet, "-q").stdout == snapshot("""\
SERVER  TOOLS  TOKENS  SHARE
notes       3     146    52%
clock       2     135    48%
total       5     281   100%

by style        mcp 281, double 283, server 276, raw 268
with discovery  258 in the first prompt: saves 23
discovery       not in use (auto, from 8,000 tokens on)
estimator       chars/4: four ASCII characters a token, others one each
""")


def test_eval_on_a_terminal(terminal, fleet, tmp_path) -> None:
    (tmp_path / "labelled.jsonl").write_text('{"text": "sing", "tools": ["clock/now"]}\n')
    shown = terminal("eval", "labelled.jsonl", "--misses", "--config", fleet, "-q", columns=50)
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
✓ every message is in t.log
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
