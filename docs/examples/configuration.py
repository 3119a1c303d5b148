"""Examples of the reference: the function has the name of what it shows. `tests/docs` runs them."""

from pathlib import Path

import mooring
from mooring import Host
from mooring.testing import FakeServer


def ServerConfig() -> None:
    server = mooring.ServerConfig(
        name="files",
        command="npx",
        args=("-y", "@modelcontextprotocol/server-filesystem@2026.1.14", "."),
        allow=("read_*", "list_*"),
        call_timeout=60,
    )
    print(server.transport, server.start, server.max_queue)  # prints: stdio background 64


def HostConfig() -> None:
    config = mooring.HostConfig(
        servers=(mooring.ServerConfig(name="web", url="https://mcp.example.com/mcp"),),
        style="double",
        policy=mooring.Policy(ask=("@destructive",)),
    )
    print(config.servers[0].transport, config.discovery_budget)  # prints: http 8000


def Secret() -> None:
    secret = mooring.Secret("s3cret-value")
    print(secret, [secret])  # prints: *** [***]


async def TrustRequest(folder: Path) -> None:
    asked: list[mooring.TrustRequest] = []

    def trust(request: mooring.TrustRequest) -> bool:
        asked.append(request)  # show request.servers to the user
        return False

    (folder / ".mcp.json").write_text('{"mcpServers": {"found": {"command": "found-mcp"}}}')
    async with Host.from_config(trust=trust) as host:
        print([server.name for server in asked[0].servers])  # prints: ['found']
        print(type(host.held["found"]).__name__)  # prints: NotTrusted


async def __version__(shop: FakeServer) -> None:
    print(mooring.__version__.count("."))  # prints: 2
