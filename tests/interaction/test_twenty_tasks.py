"""A scripted model with three tools does twenty everyday tasks over nine servers: it ends with the right
tool, by search or by groups, and its list of tools only ever grows at the end."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from mooring import Host, HostConfig, Session
from tests.lab.stdio import lab_server

pytestmark = pytest.mark.anyio

SERVERS: dict[str, tuple[str, dict[str, str]]] = {
    "github": (
        "Repositories, issues and pull requests on GitHub",
        {
            "create_issue": "Create a new issue in a repository",
            "list_pull_requests": "List the pull requests of a repository",
            "merge_pull_request": "Merge a pull request",
            "search_code": "Search for code across repositories",
            "fork_repository": "Fork a repository to your account",
        },
    ),
    "filesystem": (
        "Files and directories on this computer",
        {
            "read_text_file": "Read the complete contents of a file as text",
            "write_file": "Create a new file or overwrite an existing one",
            "list_directory": "List the files and directories at a path",
            "move_file": "Move or rename files and directories",
            "search_files": "Recursively search for files matching a pattern",
        },
    ),
    "time": (
        "Clock and time zones",
        {
            "get_current_time": "Get the current time in a time zone",
            "convert_time": "Convert a time between time zones",
        },
    ),
    "calendar": (
        "Meetings and events",
        {
            "create_event": "Schedule a meeting or event with guests",
            "delete_event": "Cancel an event",
            "list_events": "List the events of a day or week",
        },
    ),
    "mail": (
        "Electronic mail",
        {
            "send_email": "Send an email with subject and attachments",
            "search_inbox": "Find messages in the inbox",
            "mark_as_read": "Mark a message as read",
        },
    ),
    "maps": (
        "Places and directions",
        {
            "maps_geocode": "Turn an address into coordinates",
            "maps_directions": "Directions between two places by car, bicycle or on foot",
            "maps_elevation": "Height above sea level of a location",
        },
    ),
    "database": (
        "A PostgreSQL database",
        {
            "query": "Run a read-only SQL query",
            "list_tables": "List the tables of the database",
            "describe_table": "Show the columns of a table",
        },
    ),
    "weather": (
        "Weather reports",
        {
            "get_forecast": "Weather forecast for the next days",
            "get_alerts": "Storm and flood warnings for an area",
        },
    ),
    "browser": (
        "A web browser",
        {
            "navigate": "Open a web page by its address",
            "screenshot": "Take a picture of the current page",
            "click": "Click on an element of the page",
            "fill_form": "Fill in the fields of a form",
        },
    ),
}

TASKS = [
    ("Report a bug: open an issue in our repository", "github", "create_issue"),
    ("Which pull requests are open in the repository?", "github", "list_pull_requests"),
    ("Merge that pull request", "github", "merge_pull_request"),
    ("Make a fork of this repository", "github", "fork_repository"),
    ("Read the text of the file notes.txt", "filesystem", "read_text_file"),
    ("Write the results to a new file", "filesystem", "write_file"),
    ("What is in the directory src? List its files", "filesystem", "list_directory"),
    ("Rename the file draft.md", "filesystem", "move_file"),
    ("What time is it in Tokyo? Get the current time", "time", "get_current_time"),
    ("Convert 3 pm in Berlin to New York time", "time", "convert_time"),
    ("Schedule a meeting with Ana tomorrow", "calendar", "create_event"),
    ("Cancel the event on Friday", "calendar", "delete_event"),
    ("Send Bob an email with the report", "mail", "send_email"),
    ("Find the messages from the bank in my inbox", "mail", "search_inbox"),
    ("Directions by bicycle between the station and the museum", "maps", "maps_directions"),
    ("Coordinates of the address 10 Downing Street", "maps", "maps_geocode"),
    ("Run an SQL query on the database for last month's orders", "database", "query"),
    ("Which columns does the table customers have? Describe the table", "database", "describe_table"),
    ("Weather forecast for Oslo in the next days", "weather", "get_forecast"),
    ("Take a screenshot of the web page", "browser", "screenshot"),
]


@pytest.fixture
def config() -> HostConfig:
    servers = [
        lab_server(
            name,
            tools=[],
            definitions=[
                {"name": tool, "description": text, "inputSchema": {"type": "object"}}
                for tool, text in tools.items()
            ],
        )
        for name, (_, tools) in SERVERS.items()
    ]
    return HostConfig(servers=tuple(servers), discovery="always")


def _words(text: str) -> set[str]:
    return {word.rstrip("s") for word in re.findall(r"[a-z]{3,}", text.lower())} - {
        "the",
        "and",
        "for",
        "with",
    }


def _best(task: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """What a very simple model would take: the entry that shares most words with the task."""
    return max(entries, key=lambda entry: len(_words(task) & _words(json.dumps(entry))))


async def _by_search(chat: Session, task: str) -> str:
    found = (await chat.call("tools_search", {"query": task})).structured["tools"]
    return found[0]["name"]


async def _by_groups(chat: Session, task: str, server: str) -> str:
    groups = (await chat.call("tools_groups")).structured["groups"]
    group = next(group for group in groups if group["id"] == f"mcp:{server}")  # reading is the model's part
    selected = (await chat.call("tools_select", {"group": group["id"]})).structured["selected"]
    return _best(task, selected)["name"]


@pytest.mark.parametrize("way", ["search", "groups"])
async def test_twenty_tasks_end_with_the_right_tool(config: HostConfig, way: str) -> None:
    async with Host(config, lock=False) as host:
        assert await host.ready(30)
        chat = host.session("chat")
        wrong: list[str] = []
        shown = chat.tools()
        for task, server, tool in TASKS:
            name = await (_by_search(chat, task) if way == "search" else _by_groups(chat, task, server))
            assert not (await chat.call("tools_select", {"tools": [name]})).is_error
            result = await chat.call(name)
            assert not result.is_error, result.text
            if (result.server, result.tool) != (server, tool):
                wrong.append(f"{task}: {result.server}/{result.tool}")
            now = chat.tools()
            assert now[: len(shown)] == shown
            shown = now
        assert wrong == []
