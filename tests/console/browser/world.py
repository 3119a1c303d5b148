"""Servers for the tests of the pages: healthy, ill, long names, other scripts, pictures, a page, a changed tool."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

from mooring.testing import FakeServer

LONG = "synchronise_the_calendar_of_every_member_of_the_organisation_with_the_shared_room_plan"
ARABIC = "يبحث في الملاحظات عن كلمة ويعيد العناوين المطابقة"
HEBREW = "חיפוש פתקים"


def png(width: int = 320, height: int = 120) -> str:
    """A picture with a gradient, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(
        b"\0" + b"".join(bytes((20 + 180 * x // width, 90 + 90 * y // height, 130)) for x in range(width))
        for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
    return base64.b64encode(data).decode()


def github() -> FakeServer:
    server = FakeServer("github", instructions="Prefer search over listing.")
    issue = {
        "type": "object",
        "required": ["repo", "title"],
        "properties": {
            "repo": {
                "type": "string",
                "description": "Owner and name, such as octo/rope",
                "examples": ["octo/rope"],
            },
            "title": {"type": "string", "description": "One line that says what is wrong", "maxLength": 120},
            "labels": {"type": "array", "items": {"enum": ["bug", "question", "docs", "security"]}},
            "priority": {"type": "integer", "minimum": 1, "maximum": 5, "default": 3},
            "assignee": {
                "type": "object",
                "required": ["login"],
                "properties": {"login": {"type": "string"}, "notify": {"type": "boolean"}},
            },
            "draft": {"type": "boolean"},
        },
    }
    define(
        server,
        "create_issue",
        "Open an issue in a repository.",
        issue,
        {
            "content": [{"type": "text", "text": "Opened octo/rope#128"}],
            "structuredContent": {
                "number": 128,
                "url": "https://github.example/octo/rope/issues/128",
                "labels": ["bug"],
            },
        },
        destructiveHint=False,
    )
    repo = {"type": "object", "required": ["repo"], "properties": {"repo": {"type": "string"}}}
    define(
        server,
        "list_issues",
        "List the open issues of a repository.",
        repo,
        "#128 Rope frays at the cleat",
        readOnlyHint=True,
    )
    define(
        server,
        "delete_branch",
        "Delete a branch. It cannot be restored.",
        repo,
        "deleted",
        destructiveHint=True,
    )
    define(
        server,
        "search_code",
        "Search code in all repositories that you can read.",
        {"type": "object", "properties": {"query": {"type": "string"}}},
        "3 matches",
        readOnlyHint=True,
        openWorldHint=True,
    )
    define(
        server,
        "merge_pull_request",
        "Merge a pull request into its base branch.",
        repo,
        {"content": [{"type": "text", "text": "The branch is not up to date with main."}], "isError": True},
    )
    server.resource(
        "repo://octo/rope/README.md",
        "# rope\n\nStrong rope for small boats.\n",
        name="README of rope",
        mime_type="text/markdown",
    )

    @server.prompt
    def review(repo: str, focus: str = "tests") -> str:
        """Review the open pull requests of a repository."""
        return f"Review the open pull requests of {repo}. Look at the {focus} first."

    return server


def studio() -> FakeServer:
    server = FakeServer("studio")
    picture = {
        "content": [
            {"type": "text", "text": "Tide at Kiel, next 24 hours"},
            {"type": "image", "data": png(), "mimeType": "image/png"},
            {
                "type": "resource_link",
                "uri": "chart://kiel/today",
                "name": "kiel-today",
                "title": "Data of the chart",
                "mimeType": "text/csv",
            },
        ]
    }
    define(
        server,
        "draw_chart",
        "Draw a chart of the tide.",
        {"type": "object", "properties": {"harbour": {"type": "string", "default": "Kiel"}}},
        picture,
        readOnlyHint=True,
    )
    define(
        server,
        LONG,
        f"Keeps calendars in step. {'It reads every calendar, compares each entry and writes the differences. ' * 6}",
        {"type": "object", "properties": {}},
        "done",
    )
    define(
        server,
        "search_notes",
        ARABIC,
        {
            "type": "object",
            "properties": {"query": {"type": "string", "title": HEBREW, "description": ARABIC}},
        },
        f"{ARABIC} (3)",
        title=HEBREW,
        readOnlyHint=True,
    )
    server.resource(
        "chart://kiel/today", "hour,metres\n0,0.4\n6,1.9\n", name="kiel-today", mime_type="text/csv"
    )
    return server


def define(
    server: FakeServer,
    name: str,
    description: str,
    schema: dict[str, Any],
    answer: Any,
    title: str | None = None,
    **annotations: bool,
) -> None:
    definition: dict[str, Any] = {
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": annotations,
    }
    server.define({**definition, **({"title": title} if title else {})}, answer)
