"""Write docs/adapters/: one page for each framework, of the same structure, and the table in docs/adapters.md.

The programs on the pages are those in examples/, which `make test-adapters` runs, and those in examples/gateway/,
which `make test-frameworks` runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "adapters"
OVERVIEW = ROOT / "docs" / "adapters.md"
START, END = "<!-- frameworks: written by `make format` -->", "<!-- end of frameworks -->"


@dataclass(frozen=True, kw_only=True)
class Framework:
    """What differs between the pages."""

    title: str
    module: str | None
    """Name in `mooring.adapters`; None for a framework that uses the gateway."""
    install: str
    example: str
    streaming: str
    errors: str
    failures: str
    """For the table: how a failed call is shown to the model."""
    images: str = "yes"
    changes: str = "`live`"
    notes: str = ""


BESIDE = (
    "\n`harbour` and `scripted` are modules of examples/. With your own servers, write `Host.from_config()` and leave\n"
    "them out."
)
PROGRESS = (
    "Progress of a tool does not reach the model: `host.events()`, or `on_progress` of `session.call`, reports it to\n"
    "your application."
)
GATEWAY_PROGRESS = (
    "Progress of a tool does not reach the model. The gateway reports it to an MCP client that asks for it."
)
APPROVALS = """\
Calls go through the host, so its policy applies in every framework. A call that needs approval waits for
`on_approval`. A denied call is a failed call: the model reads the reason.

```py
config = HostConfig(servers=servers, policy=Policy(ask=("@destructive", "write_*")))
async with Host(config, on_approval=ask_the_user) as host:
    ...
```
"""
GATEWAY_APPROVALS = """\
The gateway asks its client with an elicitation. A client that does not answer one cannot approve: the call is denied,
and the model reads why. Allow tools beforehand with `policy: {allow: [...]}`.
"""

FRAMEWORKS = {
    "openai": Framework(
        title="OpenAI Responses and Chat",
        module="openai",
        install="pip install mooring openai",
        example="openai_responses.py",
        streaming="Stream the reply with the SDK, then pass the final reply to `results`:\n"
        "`async with client.responses.stream(...) as stream`, then `openai.results(session, await stream.get_final_response())`.",
        errors="The output of a failed call is a text that starts with `Error:`; the API has no error flag.",
        failures="text `Error: …`",
        images="Responses: yes; Chat: as text",
        changes="call `tools` each turn",
        notes='`api="chat"` gives the shape of Chat Completions. `strict=True` (in both calls) compiles for Structured Outputs.\n'
        "`deferred=True` gives all tools in namespaces, for OpenAI's tool search.",
    ),
    "anthropic": Framework(
        title="Anthropic Messages",
        module="anthropic",
        install="pip install mooring anthropic",
        example="anthropic_messages.py",
        streaming="`async with client.messages.stream(...) as stream`, then\n"
        "`anthropic.results(session, await stream.get_final_message())`.",
        errors="A failed call is a `tool_result` with `is_error: true`. In the tool runner it raises the SDK's `ToolError`,\n"
        "which the runner shows to the model.",
        failures="`is_error`; runner: `ToolError`",
        changes="call `tools` each turn",
        notes="`deferred=True` gives all tools with Anthropic's tool search. For the SDK's own loop: "
        "`anthropic.runner_tools(session)`\n(extra `anthropic`).",
    ),
    "google-genai": Framework(
        title="Google GenAI",
        module="google_genai",
        install="pip install mooring google-genai",
        example="google_genai_loop.py",
        streaming="With `generate_content_stream`, collect the parts of all chunks, and give `results` a response that has them all.",
        errors='The function response of a failed call is `{"error": "…"}`.',
        failures='`{"error": …}`',
        changes="call `tools` each turn",
        notes="Schemas are compiled to Google's own `Schema`.",
    ),
    "openai-agents": Framework(
        title="OpenAI Agents SDK",
        module="openai_agents",
        install="pip install 'mooring[openai-agents]'",
        example="openai_agents_agent.py",
        streaming="`Runner.run_streamed(agent, ...)` works unchanged; calls of tools appear in `stream_events()`.",
        errors="The model reads a text that starts with `Error:`; the run continues.",
        failures="text `Error: …`",
        notes="`Agent(tools=openai_agents.tools(session))` uses the current tools; `deferred=True` adds OpenAI's tool search.",
    ),
    "google-adk": Framework(
        title="Google ADK",
        module="google_adk",
        install="pip install 'mooring[google-adk]'",
        example="google_adk_agent.py",
        streaming="`runner.run_async(...)` yields events, with calls and responses of tools among them.",
        errors='The response of a failed call is `{"error": "…"}`.',
        failures='`{"error": …}`',
        changes="always",
    ),
    "langchain": Framework(
        title="LangChain and LangGraph",
        module="langchain",
        install="pip install 'mooring[langchain]'",
        example="langchain_agent.py",
        streaming='`agent.astream(..., stream_mode="updates")` works unchanged.',
        errors="A failed call raises `ToolException` inside the tool; the message has `status: error` and the text.",
        failures="`ToolException`, message status",
        notes="`langchain.tools(session)` is a list for `create_agent`, `ToolNode` and `bind_tools`; each works with `invoke` (from a\n"
        'thread) and `ainvoke`. The structured value is in `artifact["structured_content"]`.',
    ),
    "pydantic-ai": Framework(
        title="pydantic-ai",
        module="pydantic_ai",
        install="pip install 'mooring[pydantic-ai]'",
        example="pydantic_ai_agent.py",
        streaming="`agent.run_stream(...)` and `agent.iter(...)` work unchanged.",
        errors="A failed call raises `ToolFailed`, which the model reads as a failed return.",
        failures="`ToolFailed`",
        changes="always",
        notes="`deferred=True` gives all tools with pydantic-ai's tool search. The structured value is in the `metadata` of the return.",
    ),
    "llama-index": Framework(
        title="LlamaIndex",
        module="llama_index",
        install="pip install 'mooring[llama-index]'",
        example="llama_index_agent.py",
        streaming="`handler = agent.run(...)`, then `async for event in handler.stream_events()`.",
        errors="A failed call is a `ToolOutput` with `is_error` and a text that starts with `Error:`.",
        failures="`is_error`, text `Error: …`",
    ),
    "agent-framework": Framework(
        title="Microsoft Agent Framework",
        module="agent_framework",
        install="pip install 'mooring[agent-framework]'",
        example="agent_framework_agent.py",
        streaming="`agent.run(..., stream=True)` works unchanged.",
        errors="The framework hides exceptions from the model, so failures are returned as text; `additional_properties` has\n"
        "`is_error` and `structured_content`.",
        failures="text `Error: …`",
        changes="`live`, per run",
    ),
    "strands": Framework(
        title="Strands",
        module="strands",
        install="pip install 'mooring[strands]'",
        example="strands_agent.py",
        streaming="`agent.stream_async(...)` works unchanged.",
        errors="The result of a failed call has the status `error`.",
        failures="status `error`",
        notes="Strands holds `mcp` below 2.2, which mooring works with.",
    ),
    "smolagents": Framework(
        title="smolagents",
        module="smolagents",
        install="pip install 'mooring[smolagents]'",
        example="smolagents_agent.py",
        streaming="`agent.run(..., stream=True)` works unchanged.",
        errors="A failed call raises `SmolToolError`; the agent shows its text to the model.",
        failures="exception",
        images="alone: PIL",
        changes="no",
        notes="With a `Host`, run the agent in a thread: `await asyncio.to_thread(agent.run, question)`.",
    ),
    "llm": Framework(
        title="llm",
        module="llm",
        install="pip install 'mooring[llm]'",
        example="llm_chain.py",
        streaming="Iterate over the chain: it yields text as it arrives.",
        errors="A failed call raises `LlmToolError`; llm shows its text to the model.",
        failures="exception",
        images="attachments",
        changes="no",
        notes="With a `Host`, use `llm.get_async_model`.",
    ),
    "crewai": Framework(
        title="CrewAI",
        module=None,
        install="pip install mooring crewai 'crewai-tools[mcp]'",
        example="gateway/crewai_agent.py",
        streaming="Results of tools arrive whole. `Crew(stream=True)` is CrewAI's own setting, for the text of the model.",
        errors="CrewAI shows the text of a failed call to the agent.",
        failures="text",
        images="no",
        changes="no",
    ),
    "ag2": Framework(
        title="AG2 and AutoGen",
        module=None,
        install="pip install mooring 'ag2[mcp]'",
        example="gateway/ag2_agent.py",
        streaming="Pass a stream: `agent.ask(..., stream=stream)`. AG2 emits `ToolCallEvent` and `ToolResultEvent` on it.",
        errors="A failed call is a tool error event, which the model reads.",
        failures="tool error",
        images="no",
        changes="at each discovery",
        notes="AutoGen 0.7 is superseded by the Microsoft Agent Framework, which has [an adapter](agent-framework.md). Its own client\n"
        'works too, with `mcp<2`: `mcp_server_tools(StdioServerParams(command="mooring", args=["serve", "--stdio"]))`.',
    ),
    "semantic-kernel": Framework(
        title="Semantic Kernel",
        module=None,
        install="pip install mooring 'semantic-kernel[mcp]'",
        example="gateway/semantic_kernel_agent.py",
        streaming="Call tools with `kernel.invoke`: the MCP plugin of Semantic Kernel 1.45 does not implement `kernel.invoke_stream`.",
        errors="A failed call raises `FunctionExecutionException`; with automatic function calling the model reads it.",
        failures="exception",
        images="no",
        changes="no (see its page)",
        notes="When a server announces changed tools, the plugin of Semantic Kernel 1.45 lists them inside the handler that reads\n"
        "responses, and hangs, with any MCP server. If tools can change while your program runs, override\n"
        "`message_handler` in a subclass of `MCPStdioPlugin` so that it ignores the message.",
    ),
}


def page(name: str, one: Framework) -> str:
    """The page of one framework."""
    source = (ROOT / "examples" / one.example).read_text().rstrip()
    by_gateway = one.module is None
    head = (
        f"The MCP client of {one.title} talks to `mooring serve --stdio`, which is the whole catalog as one server."
        if by_gateway
        else f"`mooring.adapters.{one.module}` gives the tools of a host or a session to {one.title}."
    )
    target = "test-frameworks" if by_gateway else "test-adapters"
    parts = [
        f"# {one.title}\n\n<!-- written by `make format` -->\n\n{head}",
        f"## Install\n\n```sh\n{one.install}\n```",
        f"## Shortest program\n\n[examples/{one.example}](../../examples/{one.example})"
        " runs unchanged in a clone of the repository, on bundled servers"
        + (
            "."
            if by_gateway
            else f" and with a scripted model; a comment shows the line for a real one.{BESIDE}"
        )
        + f"\n\n```py\n{source}\n```",
        *([one.notes] if one.notes else []),
        f"## Streaming\n\n{one.streaming}\n{GATEWAY_PROGRESS if by_gateway else PROGRESS}",
        f"## Approvals\n\n{GATEWAY_APPROVALS if by_gateway else APPROVALS}".rstrip(),
        f"## Errors\n\n{one.errors} A timeout and a lost server are failed calls too. An unknown\ntool is one with the nearest name, unless the framework rejects it first: see [discovery](../adapters.md#discovery).",
        "## Tests\n\nGive the agent a scripted server instead of the real ones: see [test your agent](../testing.md)."
        f" `make {target}` runs the program on this page with the newest release"
        + ("." if by_gateway else ", and streams a run."),
    ]
    return "\n\n".join(parts) + "\n"


def table() -> str:
    """All frameworks in one table."""
    rows = ["| framework | install | by | failures | images | sees changes |", "|---|---|---|---|---|---|"]
    for name, one in FRAMEWORKS.items():
        by = "gateway" if one.module is None else f"`{one.module}`"
        extra = re.findall(r"mooring\[[a-z-]+\]", one.install)
        install = f"`{extra[0]}`" if extra else "–"
        rows.append(
            f"| [{one.title}](adapters/{name}.md) | {install} | {by} | {one.failures} | {one.images} | {one.changes} |"
        )
    return "\n".join(rows)


def overview(text: str) -> str:
    """The text of docs/adapters.md with the table."""
    before, _, rest = text.partition(START)
    return f"{before}{START}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for name, one in FRAMEWORKS.items():
        (PAGES / f"{name}.md").write_text(page(name, one))
    OVERVIEW.write_text(overview(OVERVIEW.read_text()))
