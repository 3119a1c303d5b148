"""Examples of the reference: the function has the name of what it shows. `tests/docs` runs them."""

from collections.abc import Mapping
from typing import Any

import mooring
from mooring import Host


async def LocalTools() -> None:
    def add(left: int, right: int) -> int:
        """Add two numbers."""
        return left + right

    async with Host(local=mooring.LocalTools(add)) as host:  # or Host(local=[add])
        print((await host.call("add", {"left": 1, "right": 2})).text)  # prints: 3


async def Provider() -> None:
    class Clock:
        name = "clock"
        tool = mooring.Tool(name="now", server="clock", remote_name="now", description="The time.")
        snapshot = mooring.Snapshot(server="clock", tools=(tool,))

        async def start(self) -> None: ...
        async def refresh(self) -> None: ...
        async def stop(self) -> None: ...
        async def call(self, tool: str, arguments: Mapping[str, Any], **options: Any) -> mooring.Result:
            block = mooring.Block({"type": "text", "text": "noon"})
            return mooring.Result(server=self.name, tool=tool, blocks=(block,))

    async with Host(providers=[Clock()]) as host:
        print((await host.call("mcp_clock_now")).text)  # prints: noon
