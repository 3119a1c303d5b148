"""Images and links on terminals that have them. Nothing here asks the terminal: variables decide."""

from __future__ import annotations

import base64
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Literal, TextIO

LARGEST_IMAGE = 8 * 2**20
"""Bytes of an image that is drawn; larger ones are only saved."""
_CHUNK = 4096
_LINKED = re.compile(r"(?:https?|file)://[\x21-\x7e]{1,2000}")
_LINKING = ("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "rio", "Tabby", "WarpTerminal")
_DRAWING = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PNG = b"\x89PNG\r\n\x1a\n"


def image_protocol(
    stream: TextIO | None = None, environment: Mapping[str, str] = os.environ
) -> Literal["kitty", "iterm2"] | None:
    """How the terminal behind a stream (default: standard output) draws images; None if it does not.

    Inside tmux and screen images would need their passthrough, so that they are not drawn there.
    """
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if not (stream or sys.stdout).isatty() or term == "dumb":
        return None
    if "TMUX" in environment or term.startswith(("screen", "tmux")):
        return None
    if "KITTY_WINDOW_ID" in environment or term in ("xterm-kitty", "xterm-ghostty") or program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm", "rio") or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm2"
    return None


def picture(encoded: str, mime_type: str | None, protocol: Literal["kitty", "iterm2"] | None) -> str | None:
    """The escape sequence that draws an image; None if this terminal cannot draw it.

    Args:
        encoded: The image in base64, as a server sent it. It is decoded and encoded again, so that nothing
            else of it reaches the terminal.
    """
    if protocol is None or mime_type not in _DRAWING or len(encoded) > LARGEST_IMAGE * 2:
        return None
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError:
        return None
    if not 0 < len(data) <= LARGEST_IMAGE:
        return None
    encoded = base64.b64encode(data).decode()
    if protocol == "iterm2":
        return f"\x1b]1337;File=inline=1;size={len(data)};preserveAspectRatio=1:{encoded}\x07"
    if not data.startswith(_PNG):  # the only format that kitty decodes itself
        return None
    return "".join(_kitty(encoded))


def _kitty(encoded: str) -> Iterator[str]:
    parts = [encoded[start : start + _CHUNK] for start in range(0, len(encoded), _CHUNK)]
    for number, part in enumerate(parts):
        head = "a=T,f=100,q=2," if number == 0 else ""
        yield f"\x1b_G{head}m={int(number < len(parts) - 1)};{part}\x1b\\"


def has_links(stream: TextIO | None = None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal behind a stream (default: standard output) has clickable links (OSC 8)."""
    term = environment.get("TERM", "")
    if not (stream or sys.stdout).isatty() or term == "dumb" or environment.get("NO_COLOR"):
        return False
    vte = environment.get("VTE_VERSION", "")
    return (
        environment.get("TERM_PROGRAM", "") in _LINKING
        or any(name in environment for name in ("KITTY_WINDOW_ID", "WT_SESSION", "KONSOLE_VERSION"))
        or term in ("xterm-kitty", "xterm-ghostty", "alacritty", "foot")
        or (vte.isdigit() and int(vte) >= 5000)
    )


def link(address: str, text: str | None = None) -> str:
    """The text (default: the address) as a link. Only addresses of the web and of files become one."""
    shown = address if text is None else text
    if _LINKED.fullmatch(address) is None:
        return shown
    return f"\x1b]8;;{address}\x1b\\{shown}\x1b]8;;\x1b\\"


def linked(text: str) -> str:
    """The text with its addresses as links. It must not contain control characters."""
    return _LINKED.sub(lambda found: _without_end(found[0]), text)


def _without_end(address: str) -> str:
    core = address.rstrip(".,;:!?)]}>'\"`")
    return link(core) + address[len(core) :]
