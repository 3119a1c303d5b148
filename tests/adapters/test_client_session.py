"""A framework that takes an official `ClientSession`: the MCP tools of LlamaIndex, through mooring."""

from __future__ import annotations

import pytest

from mooring import Host
from tests.lab.stdio import lab_server

mcp_tools = pytest.importorskip("llama_index.tools.mcp")
pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_llama_index_lists_and_calls_through_the_session(era: str) -> None:
    from mooring.sdk import client_session

    async with Host([lab_server(era=era, tools=["echo", "sleep"])], lock=False) as host:
        async with client_session(host, "lab") as client:
            spec = mcp_tools.McpToolSpec(client=client, allowed_tools=["echo"])
            (tool,) = await spec.to_tool_list_async()
            assert tool.metadata.name == "echo"
            assert "hi from LlamaIndex" in str(await tool.acall(text="hi from LlamaIndex"))
