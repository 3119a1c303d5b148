"""A server with all that the conformance suite asks for, on the SDK's own server, in both eras. It does not
look at the protocol version: tools that ask do so through the session, or by their result, in every era.

python fixture.py stdio | http PORT | sse PORT
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import sys
from typing import Any

import anyio
import mcp.types as T  # noqa: N812 -- as its own documentation writes it
from mcp import MCPError
from mcp.server import NotificationOptions, Server
from mcp.server.caching import CacheHint
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
SECRET = os.urandom(32)
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
SCHEMA_2020: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def form(message: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(prompt: str, tokens: int) -> dict[str, Any]:
    said = [{"role": "user", "content": {"type": "text", "text": prompt}}]
    return {"method": "sampling/createMessage", "params": {"messages": said, "maxTokens": tokens}}


ROOTS = {"method": "roots/list", "params": {}}
NAME = form("What is your name?", {"name": {"type": "string"}}, ["name"])
DEFAULTS = {
    "name": {"type": "string", "description": "User name", "default": "John Doe"},
    "age": {"type": "integer", "description": "User age", "default": 30},
    "score": {"type": "number", "description": "User score", "default": 95.5},
    "status": {
        "type": "string",
        "description": "User status",
        "enum": ["active", "inactive", "pending"],
        "default": "active",
    },
    "verified": {"type": "boolean", "description": "Verification status", "default": True},
}


def _titled(values: str, names: str) -> list[dict[str, str]]:
    return [{"const": f"value{n}", "title": f"{name} {names}"} for n, name in enumerate(values.split(), 1)]


_OPTIONS = ["option1", "option2", "option3"]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": _OPTIONS},
    "titledSingle": {"type": "string", "oneOf": _titled("First Second Third", "Option")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {
        "type": "array",
        "minItems": 1,
        "maxItems": 3,
        "items": {"type": "string", "enum": _OPTIONS},
    },
    "titledMulti": {
        "type": "array",
        "minItems": 1,
        "maxItems": 3,
        "items": {"anyOf": _titled("First Second Third", "Choice")},
    },
}


def text(said: str, **more: Any) -> T.CallToolResult:
    return T.CallToolResult(content=[T.TextContent(type="text", text=said)], **more)


def signed(state: str) -> str:
    return f"{state}.{hmac.new(SECRET, state.encode(), hashlib.sha256).hexdigest()}"


def checked(state: str | None) -> str:
    plain, _, mark = (state or "").rpartition(".")
    if not hmac.compare_digest(mark, hmac.new(SECRET, plain.encode(), hashlib.sha256).hexdigest()):
        raise MCPError(T.INVALID_PARAMS, "the requestState is not ours")
    return plain


def asked(requests: dict[str, Any], state: str | None = None) -> T.InputRequiredResult:
    raw: dict[str, Any] = {"resultType": "input_required", "inputRequests": requests}
    return T.InputRequiredResult.model_validate(raw if state is None else {**raw, "requestState": state})


def given(params: Any, key: str) -> dict[str, Any]:
    """The client's answer to one of our questions, as JSON."""
    answer = (params.input_responses or {}).get(key)
    return {} if answer is None else answer.model_dump(by_alias=True, exclude_none=True)


SKILLS = ("code-review", "pdf-processing")
CACHED = {"resultType": "complete", "ttlMs": 300_000, "cacheScope": "public"}
FILES = {
    f"skill://fixture/{name}/{path}": content
    for name in SKILLS
    for path, content in (
        ("SKILL.md", f"---\nname: {name}\ndescription: How to do {name}\n---\n\nSee references/MORE.md.\n"),
        ("references/MORE.md", f"More about {name}.\n"),
    )
}


class AddressParams(T.PaginatedRequestParams):
    uri: str


def skill_entry(name: str) -> dict[str, Any]:
    root = f"skill://fixture/{name}"
    files = [
        {
            "uri": uri,
            "digest": f"sha256:{hashlib.sha256(content.encode()).hexdigest()}",
            "size": len(content.encode()),
        }
        for uri, content in FILES.items()
        if uri.startswith(f"{root}/")
    ]
    frontmatter = {"name": name, "description": f"How to do {name}"}
    return {"uri": f"{root}/SKILL.md", "frontmatter": frontmatter, "resources": files}


class Fixture:
    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.extra = 0
        self.more_prompts = 0
        self.server = Server(
            "conformance-fixture",
            version="1.0.0",
            cache_hints={
                name: CacheHint(300_000, "public")  # pyright: ignore[reportArgumentType]
                for name in (
                    "tools/list",
                    "prompts/list",
                    "resources/list",
                    "resources/templates/list",
                    "resources/read",
                    "server/discover",
                )
            },
            on_list_tools=self.tools,
            on_call_tool=self.call,
            on_list_resources=self.resources,
            on_list_resource_templates=self.templates,
            on_read_resource=self.read,
            on_subscribe_resource=self.nothing,
            on_unsubscribe_resource=self.nothing,
            on_subscriptions_listen=ListenHandler(self.bus),
            on_list_prompts=self.prompts,
            on_get_prompt=self.prompt,
            on_completion=self.complete,
            on_set_logging_level=self.nothing,
        )
        self.server.extensions = {"io.modelcontextprotocol/skills": {"directoryRead": True}}
        for method, params, answer in (
            ("skills/list", T.PaginatedRequestParams, self.skills),
            ("skills/get", AddressParams, self.skill),
            ("resources/directory/read", AddressParams, self.directory),
        ):
            self.server.add_request_handler(method, params, answer)

    def options(self) -> Any:
        return self.server.create_initialization_options(NotificationOptions(True, True, True))

    async def nothing(self, ctx: Any, params: Any) -> T.EmptyResult:
        return T.EmptyResult()

    # --- tools ----------------------------------------------------------------------------------

    async def tools(self, ctx: Any, params: Any) -> T.ListToolsResult:
        names = [name.removeprefix("do_") for name in dir(self) if name.startswith("do_test_")]
        named: dict[str, dict[str, Any]] = {
            "test_sampling": {"prompt": {"type": "string"}},
            "test_elicitation": {"message": {"type": "string"}},
            "test_x_mcp_header": {"region": {"type": "string", "x-mcp-header": "Region"}},
        }
        listed = [
            T.Tool(
                name=name,
                description=f"Conformance: {name}",
                input_schema={"type": "object", "properties": named.get(name, {})},
            )
            for name in names
        ]
        listed.append(
            T.Tool(name="json_schema_2020_12_tool", description="A schema.", input_schema=SCHEMA_2020)
        )
        listed += [
            T.Tool(name=f"extra_{n}", description="One more.", input_schema=EMPTY) for n in range(self.extra)
        ]
        return T.ListToolsResult(tools=listed)

    async def call(self, ctx: Any, params: T.CallToolRequestParams) -> Any:
        work = getattr(self, f"do_{params.name}", None)
        if work is None:
            if params.name == "json_schema_2020_12_tool" or params.name.startswith("extra_"):
                return text(json.dumps(params.arguments or {}))
            raise MCPError(T.INVALID_PARAMS, f"Unknown tool: {params.name}")
        return await work(ctx, params)

    async def ask(self, ctx: Any, request: dict[str, Any]) -> dict[str, Any]:
        """The client's answer to a question that is asked during the call, whatever era it is."""
        params = request["params"]
        if request["method"] == "elicitation/create":
            answer = await ctx.session.elicit_form(
                params["message"], params["requestedSchema"], ctx.request_id
            )
        else:
            messages = [T.SamplingMessage.model_validate(message) for message in params["messages"]]
            answer = await ctx.session.create_message(
                messages, max_tokens=params["maxTokens"], related_request_id=ctx.request_id
            )
        return answer.model_dump(by_alias=True, exclude_none=True)

    async def elicited(self, ctx: Any, request: dict[str, Any], lead: str) -> Any:
        answer = await self.ask(ctx, request)
        content = json.dumps(answer.get("content") or {})
        return text(f"{lead}: action={answer.get('action')}, content={content}")

    async def do_test_slow(self, ctx: Any, params: Any) -> Any:
        await asyncio.sleep(20)
        return text("at last")

    async def do_test_simple_text(self, ctx: Any, params: Any) -> Any:
        return text("This is a simple text response for testing.")

    async def do_test_image_content(self, ctx: Any, params: Any) -> Any:
        return T.CallToolResult(content=[T.ImageContent(type="image", data=PNG, mime_type="image/png")])

    async def do_test_audio_content(self, ctx: Any, params: Any) -> Any:
        return T.CallToolResult(content=[T.AudioContent(type="audio", data=WAV, mime_type="audio/wav")])

    def embedded(self, uri: str, kind: str, said: str) -> T.EmbeddedResource:
        inner = T.TextResourceContents(uri=uri, mime_type=kind, text=said)
        return T.EmbeddedResource(type="resource", resource=inner)

    async def do_test_embedded_resource(self, ctx: Any, params: Any) -> Any:
        block = self.embedded(
            "test://embedded-resource", "text/plain", "This is an embedded resource content."
        )
        return T.CallToolResult(content=[block])

    async def do_test_multiple_content_types(self, ctx: Any, params: Any) -> Any:
        data = json.dumps({"test": "data", "value": 123})
        return T.CallToolResult(
            content=[
                T.TextContent(type="text", text="Multiple content types test:"),
                T.ImageContent(type="image", data=PNG, mime_type="image/png"),
                self.embedded("test://mixed-content-resource", "application/json", data),
            ]
        )

    async def do_test_tool_with_logging(self, ctx: Any, params: Any) -> Any:
        for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)
            await asyncio.sleep(0.05)
        return text("Tool with logging executed successfully")

    async def do_test_logging_tool(self, ctx: Any, params: Any) -> Any:
        await ctx.session.send_log_message("info", "logged", related_request_id=ctx.request_id)
        return text("logged")

    async def do_test_tool_with_progress(self, ctx: Any, params: Any) -> Any:
        for step in (0, 50, 100):
            await ctx.session.report_progress(step, 100, f"Completed step {step} of 100")
            await asyncio.sleep(0.05)
        return text("done")

    async def do_test_error_handling(self, ctx: Any, params: Any) -> Any:
        return text("This tool intentionally returns an error for testing", is_error=True)

    async def do_test_sampling(self, ctx: Any, params: Any) -> Any:
        answer = await self.ask(ctx, sample((params.arguments or {}).get("prompt", ""), 100))
        return text(f"LLM response: {answer.get('content', {}).get('text', 'No response')}")

    async def do_test_elicitation(self, ctx: Any, params: Any) -> Any:
        answer = {"type": "string", "description": "User's response"}
        question = form((params.arguments or {}).get("message", "?"), {"response": answer}, ["response"])
        return await self.elicited(ctx, question, "User response")

    async def do_test_elicitation_sep1034_defaults(self, ctx: Any, params: Any) -> Any:
        question = form("Please review and update the form fields with defaults", DEFAULTS, [])
        return await self.elicited(ctx, question, "Elicitation completed")

    async def do_test_elicitation_sep1330_enums(self, ctx: Any, params: Any) -> Any:
        question = form("Please select options from the enum fields", ENUMS, [])
        return await self.elicited(ctx, question, "Elicitation completed")

    async def do_test_streaming_elicitation(self, ctx: Any, params: Any) -> Any:
        return await self.do_test_input_required_result_elicitation(ctx, params)

    async def do_test_missing_capability(self, ctx: Any, params: Any) -> Any:
        needed = {"requiredCapabilities": {"sampling": {}}}
        abilities = ctx.session.client_capabilities
        if abilities is None or abilities.sampling is None:
            raise MCPError(-32021, "sampling is needed", needed)
        return text("sampling is there")

    async def do_test_x_mcp_header(self, ctx: Any, params: Any) -> Any:
        return text(json.dumps(params.arguments))

    async def do_test_trigger_tool_change(self, ctx: Any, params: Any) -> Any:
        self.extra += 1
        await self.bus.publish(ToolsListChanged())
        await ctx.session.send_tool_list_changed()
        return text("changed")

    async def do_test_trigger_prompt_change(self, ctx: Any, params: Any) -> Any:
        self.more_prompts += 1
        await self.bus.publish(PromptsListChanged())
        await ctx.session.send_prompt_list_changed()
        return text("changed")

    async def do_test_touch_resource(self, ctx: Any, params: Any) -> Any:
        await self.bus.publish(ResourceUpdated(uri="test://watched-resource"))
        await ctx.session.send_resource_updated("test://watched-resource")
        return text("touched")

    # --- tools that ask back --------------------------------------------------------------------

    async def do_test_input_required_result_elicitation(self, ctx: Any, params: Any) -> Any:
        answer = given(params, "user_name")
        if not answer:
            return asked({"user_name": NAME})
        return text(f"Hello, {(answer.get('content') or {}).get('name')}!")

    async def do_test_input_required_result_sampling(self, ctx: Any, params: Any) -> Any:
        answer = given(params, "capital_question")
        if not answer:
            return asked({"capital_question": sample("What is the capital of France?", 100)})
        return text(str(answer.get("content", {}).get("text")))

    async def do_test_input_required_result_list_roots(self, ctx: Any, params: Any) -> Any:
        answer = given(params, "client_roots")
        if not answer:
            return asked({"client_roots": ROOTS})
        return text(", ".join(str(root["uri"]) for root in answer.get("roots", [])))

    async def do_test_input_required_result_request_state(self, ctx: Any, params: Any) -> Any:
        if not given(params, "confirm"):
            question = form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])
            return asked({"confirm": question}, signed("confirming"))
        checked(params.request_state)
        return text("state-ok")

    async def do_test_input_required_result_multiple_inputs(self, ctx: Any, params: Any) -> Any:
        keys = ("user_name", "greeting", "client_roots")
        if not all(given(params, key) for key in keys):
            requests = {
                "user_name": NAME,
                "greeting": sample("Generate a greeting", 50),
                "client_roots": ROOTS,
            }
            return asked(requests, signed("several"))
        checked(params.request_state)
        return text("all are there")

    async def do_test_input_required_result_multi_round(self, ctx: Any, params: Any) -> Any:
        if given(params, "step2"):
            return text(f"done after {checked(params.request_state)}")
        if given(params, "step1"):
            checked(params.request_state)
            color = form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])
            return asked({"step2": color}, signed("round-2"))
        name = form("Step 1: What is your name?", {"name": {"type": "string"}}, ["name"])
        return asked({"step1": name}, signed("round-1"))

    async def do_test_input_required_result_tampered_state(self, ctx: Any, params: Any) -> Any:
        if params.request_state is None:
            return asked({"confirm": form("Sure?", {"ok": {"type": "boolean"}}, ["ok"])}, signed("sure"))
        return text(f"ok after {checked(params.request_state)}")

    async def do_test_input_required_result_capabilities(self, ctx: Any, params: Any) -> Any:
        abilities = ctx.session.client_capabilities
        requests: dict[str, Any] = {}
        if abilities is not None and abilities.sampling is not None:
            requests["greeting"] = sample("Generate a greeting", 50)
        if abilities is not None and abilities.elicitation is not None:
            requests["user_name"] = NAME
        return asked(requests, signed("able"))

    # --- resources and prompts ------------------------------------------------------------------

    async def resources(self, ctx: Any, params: Any) -> T.ListResourcesResult:
        return T.ListResourcesResult(
            resources=[
                T.Resource(uri="test://static-text", name="static-text", mime_type="text/plain"),
                T.Resource(uri="test://static-binary", name="static-binary", mime_type="image/png"),
                T.Resource(uri="test://watched-resource", name="watched", mime_type="text/plain"),
            ]
        )

    async def skills(self, ctx: Any, params: Any) -> dict[str, Any]:
        """Two pages, of one skill each."""
        place = int(params.cursor or 0) if params is not None else 0
        page: dict[str, Any] = {"skills": [skill_entry(SKILLS[place])], **CACHED}
        return page if place + 1 == len(SKILLS) else {**page, "nextCursor": str(place + 1)}

    async def skill(self, ctx: Any, params: Any) -> dict[str, Any]:
        for name in SKILLS:
            if params.uri == f"skill://fixture/{name}/SKILL.md":
                return {"skill": skill_entry(name), **CACHED}
        raise MCPError(T.INVALID_PARAMS, "Unknown skill", {"uri": params.uri})

    async def directory(self, ctx: Any, params: Any) -> dict[str, Any]:
        below = {uri.removeprefix(f"{params.uri}/") for uri in FILES if uri.startswith(f"{params.uri}/")}
        if not below:
            raise MCPError(T.INVALID_PARAMS, "Not a directory", {"uri": params.uri})
        entries: dict[str, dict[str, Any]] = {}
        for path in sorted(below):
            name, _, rest = path.partition("/")
            kind = "inode/directory" if rest else "text/markdown"
            entries[name] = {"uri": f"{params.uri}/{name}", "name": name, "mimeType": kind}
        return {"resources": list(entries.values()), **CACHED}

    async def templates(self, ctx: Any, params: Any) -> T.ListResourceTemplatesResult:
        template = T.ResourceTemplate(
            uri_template="test://template/{id}/data", name="template", mime_type="application/json"
        )
        return T.ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, ctx: Any, params: Any) -> T.ReadResourceResult:
        uri = str(params.uri)
        if uri == "test://static-binary":
            contents: Any = T.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
        elif uri.startswith("test://template/"):
            key = uri.split("/")[3]
            data = {"id": key, "templateTest": True, "data": f"Data for ID: {key}"}
            contents = T.TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(data))
        elif uri in FILES:
            contents = T.TextResourceContents(uri=uri, mime_type="text/markdown", text=FILES[uri])
        elif uri in ("test://static-text", "test://watched-resource"):
            said = "This is the content of the static text resource."
            contents = T.TextResourceContents(uri=uri, mime_type="text/plain", text=said)
        else:
            raise MCPError(T.INVALID_PARAMS, "Resource not found", {"uri": uri})
        return T.ReadResourceResult(contents=[contents])

    async def prompts(self, ctx: Any, params: Any) -> T.ListPromptsResult:
        def prompt(name: str, *arguments: str) -> T.Prompt:
            wanted = [
                T.PromptArgument(name=one, required=True, description=f"The {one}") for one in arguments
            ]
            return T.Prompt(name=name, description=f"Conformance: {name}", arguments=wanted or None)

        more = [prompt(f"extra_{n}") for n in range(self.more_prompts)]
        return T.ListPromptsResult(
            prompts=[
                prompt("test_simple_prompt"),
                prompt("test_prompt_with_arguments", "arg1", "arg2"),
                prompt("test_prompt_with_embedded_resource", "resourceUri"),
                prompt("test_prompt_with_image"),
                prompt("test_input_required_result_prompt"),
                *more,
            ]
        )

    async def prompt(self, ctx: Any, params: Any) -> Any:
        arguments = params.arguments or {}

        def plain(said: str) -> T.TextContent:
            return T.TextContent(type="text", text=said)

        match params.name:
            case "test_simple_prompt":
                blocks: list[Any] = [plain("This is a simple prompt for testing.")]
            case "test_prompt_with_arguments":
                one, two = arguments.get("arg1"), arguments.get("arg2")
                blocks = [plain(f"Prompt with arguments: arg1='{one}', arg2='{two}'")]
            case "test_prompt_with_embedded_resource":
                said = "Embedded resource content for testing."
                inner = self.embedded(arguments["resourceUri"], "text/plain", said)
                blocks = [inner, plain("Please process the embedded resource above.")]
            case "test_prompt_with_image":
                image = T.ImageContent(type="image", data=PNG, mime_type="image/png")
                blocks = [image, plain("Please analyze the image above.")]
            case "test_input_required_result_prompt":
                answer = given(params, "user_context")
                if not answer:
                    question = form(
                        "What context should the prompt use?", {"context": {"type": "string"}}, ["context"]
                    )
                    return asked({"user_context": question})
                blocks = [plain(f"Context: {(answer.get('content') or {}).get('context')}")]
            case _:
                raise MCPError(T.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        return T.GetPromptResult(messages=[T.PromptMessage(role="user", content=block) for block in blocks])

    async def complete(self, ctx: Any, params: Any) -> T.CompleteResult:
        values = [value for value in ("paris", "park", "party") if value.startswith(params.argument.value)]
        return T.CompleteResult(completion=T.Completion(values=values, total=len(values), has_more=False))


def main() -> None:
    fixture = Fixture()
    way = sys.argv[1]
    if way == "stdio":
        from mcp.server.stdio import stdio_server

        async def run() -> None:
            async with stdio_server() as (reader, writer), anyio.create_task_group() as tasks:
                heard: Any = reader
                if sys.argv[-1] == "legacy":
                    send, heard = anyio.create_memory_object_stream[Any](100)
                    tasks.start_soon(_without_2026, reader, send, writer)
                await fixture.server.run(heard, writer, fixture.options())
                tasks.cancel_scope.cancel()

        asyncio.run(run())
        return
    import uvicorn

    app: Any = fixture.server.streamable_http_app() if way == "http" else _sse_app(fixture)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error", timeout_graceful_shutdown=1)


async def _without_2026(reader: Any, send: Any, writer: Any) -> None:
    """Hand on what came in, as a server of last year hears it: it does not know `server/discover`."""
    from mcp.shared.message import SessionMessage

    async with send:
        async for item in reader:
            message = getattr(item, "message", None)
            if getattr(message, "method", None) == "server/discover":
                error = T.ErrorData(code=T.METHOD_NOT_FOUND, message="Method not found")
                await writer.send(SessionMessage(T.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)))
            else:
                await send.send(item)


def _sse_app(fixture: Fixture) -> Any:
    from mcp.server.sse import SseServerTransport
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Mount, Route

    transport = SseServerTransport("/messages/")

    async def stream(request: Any) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as streams:
            await fixture.server.run(streams[0], streams[1], fixture.options())
        return Response()

    routes = [Route("/sse", stream), Mount("/messages/", app=transport.handle_post_message)]
    return Starlette(routes=routes)


if __name__ == "__main__":
    main()
