"""The reference servers from npm and PyPI: connect, list, call."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mooring import Host, ServerConfig

pytestmark = [pytest.mark.reference, pytest.mark.timeout(300)]


@asynccontextmanager
async def connected(server: ServerConfig) -> AsyncGenerator[Host]:
    """A host with this one server, which has connected and offers tools."""
    async with Host([server]) as host:
        await host.ready(timeout=60)
        (status,) = host.status()
        assert status.state == "connected", status.error
        own = [
            tool for tool in host.catalog.tools.values() if (tool.server, tool.verb) == (server.name, "call")
        ]
        assert status.tools == len(own) > 0
        yield host


async def test_everything_over_stdio(node_servers: Path) -> None:
    script = str(node_servers / "server-everything/dist/index.js")
    async with connected(ServerConfig(name="every", command="node", args=[script, "stdio"])) as host:
        result = await host.call("mcp_every_echo", {"message": "ahoy"})
        assert "ahoy" in result.text


@pytest.mark.parametrize("everything_url", ["streamableHttp"], indirect=True)
async def test_everything_over_streamable_http(everything_url: str) -> None:
    async with connected(ServerConfig(name="every", url=everything_url)) as host:
        result = await host.call("mcp_every_get_sum", {"a": 19, "b": 23})
        assert "42" in result.text


@pytest.mark.parametrize("everything_url", ["sse"], indirect=True)
async def test_everything_over_the_old_sse_transport(everything_url: str) -> None:
    async with connected(ServerConfig(name="every", url=everything_url, transport="sse")) as host:
        result = await host.call("mcp_every_echo", {"message": "ahoy"})
        assert "ahoy" in result.text


@pytest.mark.parametrize("everything_url", ["sse"], indirect=True)
async def test_http_falls_back_to_sse_where_the_server_has_nothing_newer(everything_url: str) -> None:
    async with connected(ServerConfig(name="every", url=everything_url)) as host:
        result = await host.call("mcp_every_echo", {"message": "ahoy"})
        assert "ahoy" in result.text


async def test_progress_of_a_long_call_reaches_the_caller(node_servers: Path) -> None:
    script = str(node_servers / "server-everything/dist/index.js")
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with connected(ServerConfig(name="every", command="node", args=[script, "stdio"])) as host:
        name = "mcp_every_trigger_long_running_operation"
        result = await host.call(name, {"duration": 1, "steps": 4}, on_progress=on_progress)
        assert not result.is_error, result.text
        assert seen == sorted(seen)
        assert len(seen) >= 3


async def test_filesystem_reads_inside_its_folder_and_refuses_outside(
    node_servers: Path, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("low tide at nine")
    script = str(node_servers / "server-filesystem/dist/index.js")
    async with connected(ServerConfig(name="files", command="node", args=[script, str(tmp_path)])) as host:
        inside = await host.call("mcp_files_read_text_file", {"path": str(tmp_path / "note.txt")})
        assert inside.text == "low tide at nine"
        outside = await host.call("mcp_files_read_text_file", {"path": "/etc/hostname"})
        assert outside.is_error
        assert outside.error is None, "the tool itself refused"


async def test_time_shows_the_time(time_server: Path) -> None:
    async with connected(ServerConfig(name="time", command=str(time_server))) as host:
        result = await host.call("mcp_time_get_current_time", {"timezone": "UTC"})
        assert "UTC" in result.text
        assert not result.is_error


async def test_every_kind_of_content_of_the_everything_server(node_servers: Path, tmp_path: Path) -> None:
    script = str(node_servers / "server-everything/dist/index.js")
    async with connected(ServerConfig(name="every", command="node", args=[script, "stdio"])) as host:
        tools = host.catalog.tools
        picture = await host.call("mcp_every_get_tiny_image")
        assert [block.mime_type for block in picture.blocks if block.type == "image"] == ["image/png"]
        links = await host.call("mcp_every_get_resource_links", {"count": 2})
        assert sum(block.type == "resource_link" for block in links.blocks) == 2
        data = await host.call("mcp_every_get_structured_content", {"location": "Chicago"})
        assert tools["mcp_every_get_structured_content"].output_schema is not None
        assert isinstance(data.structured, dict)
        text = await host.call("mcp_every_get_resource_reference", {"resourceType": "Text", "resourceId": 1})
        assert "[Resource demo://" in text.text
        blob = await host.call("mcp_every_get_resource_reference", {"resourceType": "Blob", "resourceId": 1})
        assert "saved as" in blob.text
        for result in (picture, links, data, text, blob):
            assert not result.is_error, result.text
            assert {block.type for block in result.blocks} <= {"text", "image", "resource_link"}
