"""Images and links: only where a terminal has them, and without text of servers in the escapes."""

from __future__ import annotations

import base64
import io
import re

import pytest

from mooring.cli.terminal import LARGEST_IMAGE, has_links, image_protocol, link, linked, picture

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("text", ["\x1b]0;evil\x07", "AAAA\x1b\\\x1b]8;;", "not base64", "====", "A" * 5])
def test_data_that_is_not_base64_never_reaches_the_terminal(text: str) -> None:
    assert picture(text, "image/png", "iterm2") is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm2"),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "dumb", "TERM_PROGRAM": "iTerm.app"}, None),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "screen", "LC_TERMINAL": "iTerm2"}, None),
    ],
)
def test_images_are_drawn_only_by_terminals_that_are_known_to_draw_them(
    environment: dict[str, str], protocol: str | None
) -> None:
    assert image_protocol(Terminal(), environment) == protocol
    assert image_protocol(io.StringIO(), environment) is None  # a pipe


def test_an_image_for_kitty_arrives_whole_in_chunks_of_4096_characters() -> None:
    drawn = picture(encoded(PNG), "image/png", "kitty")
    assert drawn is not None
    parts = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", drawn)
    assert "".join(f"\x1b_G{head};{body}\x1b\\" for head, body in parts) == drawn
    assert all(len(body) <= 4096 for _, body in parts)
    assert [head[-3:] for head, _ in parts] == ["m=1"] * (len(parts) - 1) + ["m=0"]
    assert base64.b64decode("".join(body for _, body in parts)) == PNG


def test_an_image_for_iterm2_arrives_whole() -> None:
    drawn = picture(encoded(PNG), "image/jpeg", "iterm2")
    assert drawn is not None
    assert base64.b64decode(drawn.partition(":")[2].rstrip("\x07")) == PNG


@pytest.mark.parametrize(
    ("data", "kind", "protocol"),
    [
        (PNG, "image/png", None),
        (PNG, "image/svg+xml", "iterm2"),
        (b"GIF89a", "image/png", "kitty"),
        (b"", "image/png", "iterm2"),
        (b"\x89PNG\r\n\x1a\n" + bytes(LARGEST_IMAGE), "image/png", "iterm2"),
        (PNG, None, "iterm2"),
    ],
)
def test_what_a_terminal_cannot_draw_is_not_sent_to_it(
    data: bytes, kind: str | None, protocol: object
) -> None:
    assert picture(encoded(data), kind, protocol) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environment", "there"),
    [
        ({"TERM": "xterm", "TERM_PROGRAM": "vscode"}, True),
        ({"TERM": "xterm", "VTE_VERSION": "7600"}, True),
        ({"TERM": "xterm", "VTE_VERSION": "4200"}, False),
        ({"TERM": "xterm", "WT_SESSION": "1"}, True),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm", "WT_SESSION": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_links_are_written_only_for_terminals_that_are_known_to_have_them(
    environment: dict[str, str], there: bool
) -> None:
    assert has_links(Terminal(), environment) is there
    assert has_links(io.StringIO(), environment) is False


def test_an_address_in_a_text_becomes_a_link_without_the_punctuation_after_it() -> None:
    text = linked("See https://example.com/a?b=c. Then (file:///tmp/x.png).")
    assert text == (f"See {link('https://example.com/a?b=c')}. Then ({link('file:///tmp/x.png')}).")


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "https://a\x1b]8;;evil", "https://a\x07b", "ssh://host", "", "https://ä"],
)
def test_an_address_that_is_no_plain_web_or_file_address_stays_text(address: str) -> None:
    assert link(address) == address
