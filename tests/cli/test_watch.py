"""`mooring watch`: the servers, live on a terminal, as lines in a pipe."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from select import select

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.cli.output import width_of
from mooring.cli.watch_view import WatchBoard, event_line, frame, spark
from mooring.core.events import CallFinished, CatalogChanged, StateChanged
from mooring.core.types import ServerStatus

PATIENCE = 20.0


class Watched:
    """`mooring watch` on a pseudo-terminal that is still running."""

    def __init__(self, words: list[str], cwd: object, env: dict[str, str]) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.raw = ""
        self.emulator = pyte.Screen(80, 24)
        self.stream = pyte.Stream(self.emulator)
        self.child = subprocess.Popen(
            [sys.executable, "-m", "mooring", "watch", *words],
            cwd=str(cwd),
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )

    def type(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def until(self, pattern: str) -> str:
        """The screen, as soon as it shows the pattern."""
        while not re.search(pattern, shown := "\n".join(self.emulator.display)):
            ready, _, _ = select([self.ours], [], [], PATIENCE)
            assert ready, f"{pattern!r} never came; the screen is:\n{shown}"
            self._take()
        return shown

    def end(self) -> int:
        while self.child.poll() is None:
            if select([self.ours], [], [], 0.05)[0]:
                self._take()
        while select([self.ours], [], [], 0)[0]:
            self._take()
        return self.child.returncode

    def _take(self) -> None:
        text = os.read(self.ours, 65536).decode("utf-8", "replace")
        self.raw += text
        self.stream.feed(text)


@pytest.fixture
def watched(tmp_path, environment) -> Iterator[Callable[..., Watched]]:
    running: list[Watched] = []

    def start(*words: str) -> Watched:
        running.append(Watched(list(words), tmp_path, environment))
        return running[-1]

    yield start
    for one in running:
        if one.child.poll() is None:
            one.child.kill()
        one.child.wait()
        os.close(one.ours)
        os.close(one.theirs)


def test_the_view_shows_each_server_its_state_and_its_round_trips(watched, mixed_config) -> None:
    view = watched("--config", mixed_config, "--every", "0.2")
    shown = view.until(r"notes .*fresh.* ms .*[▁▂▃▄▅▆▇█]{3}")
    assert re.search(r"2 of 3 servers connected", view.until("2 of 3"))
    assert "✗ broken" in shown
    assert "- spare" in shown
    assert "q quit" in shown


def test_keys_show_tools_turn_a_server_off_and_on_and_quit(watched, config) -> None:
    view = watched("--config", config({"clock": "clock", "notes": "notes"}))
    view.until("2 of 2 servers connected")
    view.type("t")
    view.until(r"mcp_clock_\w+")
    view.type("\x1b[B")
    view.until(r"> . notes")
    view.until(r"mcp_notes_read_note")
    view.type("d")
    view.until(r"> - notes +disabled")
    view.type("d")
    view.until(r"> ✓ notes")
    view.type("l")
    view.until(r"\d\d:\d\d:\d\d  notes: connected")
    view.type("q")
    assert view.end() == 0


def test_reconnecting_starts_the_server_again(watched, config, lab) -> None:
    view = watched("--config", config({"lab": lab.entry}))
    view.until("1 of 1 server connected")
    assert lab.starts == 1
    view.type("r")
    view.until(r"lab: connected[\s\S]*lab: connected")
    assert lab.starts == 2
    view.type("q")
    assert view.end() == 0


@pytest.mark.parametrize("how", ["q", "ctrl-c", "sigterm"])
def test_the_terminal_is_left_as_it_was_found(watched, mixed_config, how: str) -> None:
    view = watched("--config", mixed_config)
    view.until("of 3 servers")
    if how == "q":
        view.type("q")
    else:
        # Ctrl-C is not typed: a terminal that controls no process sends no signal for it, but
        # still throws away what was written to it and not yet read.
        view.child.send_signal({"ctrl-c": signal.SIGINT, "sigterm": signal.SIGTERM}[how])
    code = view.end()
    assert code == {"q": 0, "ctrl-c": 130, "sigterm": 143}[how]
    assert view.raw.count("\x1b[?1049h") == view.raw.count("\x1b[?1049l") == 1
    assert view.raw.rindex("\x1b[?25h") > view.raw.rindex("\x1b[?25l")
    assert termios.tcgetattr(view.theirs)[3] == view.before[3]


def test_in_a_pipe_each_event_is_a_line(piped, mixed_config) -> None:
    done = piped("watch", "--config", mixed_config, "--timeout", "5")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert any(re.fullmatch(r"\d\d:\d\d:\d\d  notes: connected", line.strip()) for line in lines)
    assert "\x1b" not in done.stdout


def test_with_json_each_event_is_a_document_on_its_own_line(piped, mixed_config) -> None:
    done = piped("watch", "--config", mixed_config, "--json", "--timeout", "5")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"event": "StateChanged", "server": "notes", "new": "connected"}.items() <= next(
        event
        for event in events
        if event["event"] == "StateChanged" and event["new"] == "connected" and event["server"] == "notes"
    ).items()


# --- the picture itself


def status(name: str, **fields: object) -> ServerStatus:
    return ServerStatus(**{"name": name, "state": "connected", "transport": "stdio", **fields})


names = st.text(max_size=30)
statuses = st.builds(
    status,
    names,
    state=st.sampled_from(["connected", "pending", "failed", "needs-auth", "disabled"]),
    error=st.none() | st.text(max_size=200),
    retry_in=st.none() | st.floats(0, 100),
)


@given(
    servers=st.lists(statuses, max_size=40),
    width=st.integers(20, 200),
    height=st.integers(6, 60),
    pane=st.sampled_from(["log", "tools"]),
    selected=st.integers(-3, 50),
    lines=st.lists(st.text(max_size=100), max_size=30),
)
def test_no_frame_is_larger_than_the_screen_nor_holds_a_control_character(
    servers, width, height, pane, selected, lines
) -> None:
    board = WatchBoard(selected=selected, pane=pane)
    for line in lines:
        board.state.add_log(line, "info", 1.0)
    tools = {one.name: [f"mcp_{one.name}_{n}" for n in range(50)] for one in servers}
    shown = frame(board, servers, tools, width=width, height=height, now=1.0)
    assert len(shown) == height
    assert all(width_of(text) <= width for text, _ in shown)
    assert not any(ord(c) < 32 or c in "\x7f\x9b\u202e" for text, _ in shown for c in text)


def test_the_selected_server_is_always_in_sight() -> None:
    servers = [status(f"s{number:02}") for number in range(40)]
    for selected in range(40):
        shown = frame(WatchBoard(selected=selected), servers, {}, width=80, height=24, now=0.0)
        assert any(text.startswith(f"> ✓ s{selected:02}") for text, _ in shown)


def test_servers_that_are_off_and_tools_of_mooring_do_not_count_as_in_the_console() -> None:
    servers = [status("a"), status("b", state="disabled")]
    tools = {"a": ["mcp_a_x", "mcp_a_y"], "mooring": ["read_mcp_resource"]}
    shown = frame(WatchBoard(), servers, tools, width=80, height=24, now=0.0)
    assert shown[0][0].endswith("1 of 1 server connected, 2 tools")


def test_round_trips_are_bars_and_missing_answers_crosses() -> None:
    assert spark([0.0, 0.5, 1.0, None]) == "▁▄█×"
    assert spark([]) == ""


def test_calls_are_counted_over_the_last_seconds() -> None:
    board = WatchBoard()
    for moment in (0.0, 95.0, 99.0):
        done = CallFinished(server="a", tool="t", session="s", duration=0.1, is_error=False)
        board.state.add_event(done, moment)
    shown = frame(board, [status("a")], {}, width=80, height=24, now=100.0)
    assert "100.0 ms  0.2/s  ███" in shown[1][0]
    assert sum("a: t in 100 ms" in text for text, _ in shown) == 3


def test_events_are_shown_as_a_line_without_hidden_characters() -> None:
    changed = StateChanged(server="a", old="pending", new="failed", reason="no \x1b[31mway\nsecond line")
    assert event_line(changed) == ("a: failed (no \\x1b[31mway)", "red")
    assert event_line(CatalogChanged(revision="r", added=("x", "y"), removed=("z",))) == (
        "tools changed: +2, -1",
        "plain",
    )


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here")
def test_in_tmux_the_view_is_drawn_resized_and_left_without_a_trace(
    mixed_config, environment, tmp_path
) -> None:
    socket = str(tmp_path / "tmux")

    def tmux(*words: str) -> str:
        done = subprocess.run(["tmux", "-S", socket, *words], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def until(pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, shown := tmux("capture-pane", "-p", "-t", "0")):
            assert time.monotonic() < deadline, f"{pattern!r} never came; the screen is:\n{shown}"
            time.sleep(0.05)  # tmux does not notify of changes
        return shown

    tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "20", "sh")
    try:
        tmux("send-keys", "-t", "0", "PS1='ready> '; clear", "Enter")
        until("^ready>")
        tmux("send-keys", "-t", "0", f"{sys.executable} -m mooring watch --config {mixed_config}", "Enter")
        shown = until("2 of 3 servers connected")
        assert "✗ broken" in shown
        tmux("resize-window", "-t", "0", "-x", "50", "-y", "12")
        until(r"(?m)^─{50}$")
        tmux("send-keys", "-t", "0", "q")
        assert "servers connected" not in until(r"ready> *\s*\Z")
    finally:
        tmux("kill-server")
