"""A notebook over stdio, handshake era (2025-11-25): notes are stored in memory."""

from __future__ import annotations

from typing import Any

from protocol import DemoTool, Server, serve_stdio

NOTES: dict[str, str] = {"welcome": "A mooring holds many boats."}


def read_note(title: str) -> tuple[str, Any]:
    if title not in NOTES:
        raise ValueError(f"there is no note {title!r}; choose one of: {', '.join(sorted(NOTES))}")
    return NOTES[title], {"title": title, "text": NOTES[title]}


def write_note(title: str, text: str) -> tuple[str, Any]:
    NOTES[title] = text
    return f"Saved note: {title}", {"title": title, "notes": len(NOTES)}


def list_notes() -> tuple[str, Any]:
    return "\n".join(sorted(NOTES)), {"titles": sorted(NOTES)}


TITLE = {"type": "string", "description": "Title of the note"}

if __name__ == "__main__":
    serve_stdio(
        Server(
            name="notes",
            era="handshake",
            instructions="A notebook. Call list_notes to see the titles.",
            tools={
                "read_note": DemoTool(
                    description="Read one note.",
                    properties={"title": TITLE},
                    required=("title",),
                    handler=read_note,
                ),
                "write_note": DemoTool(
                    description="Write or replace a note.",
                    properties={
                        "title": TITLE,
                        "text": {"type": "string", "description": "The text"},
                    },
                    required=("title", "text"),
                    handler=write_note,
                    read_only=False,
                ),
                "list_notes": DemoTool(
                    description="The titles of all notes.", properties={}, handler=list_notes
                ),
            },
        )
    )
