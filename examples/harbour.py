"""What the examples share: the bundled servers, and what the scripted models do with them."""

from __future__ import annotations

from scripted import Script

from mooring import ServerConfig, demo

QUESTION = "Write down where the boat lies, then read the note called welcome."
ANSWER = "The boat lies at pier 7. A mooring holds many boats."


def servers() -> list[ServerConfig]:
    """A notebook and a clock: real child processes, no network."""
    return [
        ServerConfig(name=name, command=command, args=tuple(args))
        for name in ("notes", "clock")
        for command, *args in [demo.command(name)]
    ]


def script() -> Script:
    """Two calls, then the answer."""
    return Script(
        [
            ("mcp_notes_write_note", {"title": "boat", "text": "pier 7"}),
            ("mcp_notes_read_note", {"title": "welcome"}),
        ],
        answer=ANSWER,
    )
