"""A configuration file, its lock, and a scripted server that can change between starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mooring import Host
from mooring.config.plan import fingerprint
from mooring.lock.cache import save_lock
from mooring.lock.compare import build
from tests.lab.stdio import COMMAND, methods


class Project:
    """A configuration file, its lock, and a scripted server whose behaviour can be changed between starts
    without changing the configuration: the script is in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.file, self.lock = folder / "mooring.json", folder / "mooring.lock"
        self.script, self.log = folder / "script.json", folder / "log"

    def write(self, tools: list[dict[str, Any]], *, start: str = "background", **more: Any) -> None:
        """Define the server: `script` goes into its script, the rest into its configuration."""
        script = {"tools": ["echo"], "log": str(self.log), **more.pop("script", {}), "definitions": tools}
        self.script.write_text(json.dumps(script))
        entry = {"command": COMMAND[0], "args": [*COMMAND[1:], f"@{self.script}"], "start": start, **more}
        self.file.write_text(json.dumps({"mcpServers": {"lab": entry}}))

    def host(self, **options: Any) -> Host:
        return Host.from_config(self.file, **options)

    async def write_lock(self) -> None:
        async with self.host(lock=False) as host:
            await host.refresh()
            prints = {server.name: fingerprint(server) for server in host.config.servers}
            save_lock(self.lock, build([host.provider(name).snapshot for name in prints], prints))

    @property
    def calls(self) -> int:
        """How many tool calls have reached the server."""
        return methods(self.log).count("tools/call")


def tool(name: str, description: str = "What it does", **schema: Any) -> dict[str, Any]:
    """A tool definition as a server sends it."""
    return {"name": name, "description": description, "inputSchema": {"type": "object", **schema}}
