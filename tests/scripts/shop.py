"""A server with reads and writes for scripts, which records what it was asked to do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mooring import Host, HostConfig
from mooring.config.sections import ScriptSettings
from mooring.testing import FakeServer

ID = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
ITEM = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "price": {"type": "number"}},
    "required": ["id", "name", "price"],
}


def structured(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(value)}], "structuredContent": value}


def shop(name: str = "shop") -> FakeServer:
    """`get` and `items` read; `note`, `make` and `label` write; `fails` fails."""
    server = FakeServer(name)
    read = {"readOnlyHint": True}

    def item(given: Mapping[str, Any]) -> dict[str, Any]:
        number = given["id"]
        return structured({"id": number, "name": f"item {number}", "price": number * 1.5})

    def make(given: Mapping[str, Any]) -> dict[str, Any]:
        return structured({"id": 100 + len(server.calls("make")), "name": given["name"], "price": 0})

    def define(tool: str, answer: Any, schema: Any = ID, **more: Any) -> None:
        server.define(
            {"name": tool, "description": f"{tool} something", "inputSchema": schema, **more}, answer
        )

    text = {"type": "string"}
    define("get", item, annotations=read, outputSchema=ITEM)
    define("items", lambda given: structured({"items": [1, 2, 3]}), {"type": "object"}, annotations=read)
    define("big", lambda given: "x" * given["id"], annotations=read)
    define("note", "noted", {**ID, "properties": {**ID["properties"], "text": text}})
    named = {"type": "object", "properties": {"name": text}, "required": ["name"]}
    define("make", make, named, outputSchema=ITEM)
    define("label", "labelled", {**ID, "properties": {**ID["properties"], "label": text}})
    define(
        "fails",
        {"content": [{"type": "text", "text": "out of stock"}], "isError": True},
        annotations=read,
    )
    define("app_only", "secret", annotations=read, _meta={"ui": {"visibility": ["app"]}})
    return server


@asynccontextmanager
async def shop_host(
    server: FakeServer, *, scripts: Mapping[str, Any] | None = None, more: Any = None, **options: Any
) -> AsyncIterator[Host]:
    """A host that trusts the hints of the shop."""
    config = HostConfig(
        servers=(server.http(**{"trust_hints": True, **(more or {})}),),
        scripts=ScriptSettings(**(scripts or {})),
        **options.pop("config", {}),
    )
    async with Host(config, lock=False, home=None, **options) as host:
        await host.ready(30)
        yield host


def made(result: Any) -> list[tuple[str, str]]:
    """The calls of a script: tool and state."""
    return [(call["tool"], call["state"]) for call in result.meta["mooring/script"]["calls"]]
