"""The client that the conformance suite drives: a `mooring.Host` that uses all that the server offers.

The suite appends the server's URL; the environment says which scenario it is and what it needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import aiohttp

from mooring import AuthNeeded, Host, HostConfig, Result, ServerConfig
from mooring.core.elicitation import Answer, Elicitation

NAME = "server"
LOGINS = 4
METADATA = "https://conformance-test.local/client-metadata.json"
REFUSING = ("auth/", "json-schema-ref-no-deref")
"""Scenarios whose calls may fail: many logins are to be refused, and one server has no calls."""
FAILED: list[str] = []
"""Calls that ended with an error."""
EXAMPLES: Mapping[str, Any] = {"integer": 2, "number": 2.5, "boolean": True, "array": [], "object": {}}


def settings(url: str, context: Mapping[str, Any], scenario: str) -> ServerConfig:
    auth: dict[str, Any] = {}
    if "idp_issuer" in context:
        auth = {
            "type": "enterprise",
            "client_id": context["client_id"],
            "client_secret": context["client_secret"],
            "idp": {
                "issuer": context["idp_issuer"],
                "client_id": context["idp_client_id"],
                "subject_token": context["idp_id_token"],
            },
        }
    elif "valid_jwt" in context:
        auth = {"type": "workload", "assertion": context["valid_jwt"]}
    elif "private_key_pem" in context:
        auth = {
            "type": "client_credentials",
            "client_id": context["client_id"],
            "private_key": context["private_key_pem"],
        }
    elif "client-credentials" in scenario:
        auth = {
            "type": "client_credentials",
            "client_id": context["client_id"],
            "client_secret": context["client_secret"],
        }
    elif "client_id" in context:
        auth = {"client_id": context["client_id"], "client_secret": context.get("client_secret")}
    if "cimd" in scenario:
        auth["client_metadata_url"] = METADATA
    return ServerConfig(name=NAME, url=url, auth=auth or None)


async def accept(asked: Elicitation) -> Answer:
    """The form with its own defaults, and whatever fits where there is none."""
    properties: Mapping[str, Any] = asked.schema.get("properties", {})
    needed = asked.schema.get("required", ())
    content = {
        name: field.get("default", example(field))
        for name, field in properties.items()
        if "default" in field or name in needed
    }
    return asked.accept(content)


def example(schema: Mapping[str, Any]) -> Any:
    return schema.get("enum", [EXAMPLES.get(str(schema.get("type")), "text")])[0]


async def log_in(host: Host) -> None:
    """Do what a person does: open the address, and let the browser come back."""
    login = await host.login(NAME)
    async with aiohttp.ClientSession() as browser, browser.get(login.url) as page:
        await page.read()
    with suppress(AuthNeeded):  # it may have been given to another issuer meanwhile: then once more
        await login.done(20)
    await host.refresh(NAME)


async def call(host: Host, name: str, arguments: Mapping[str, Any]) -> Result:
    result = await host.call(name, arguments, timeout=20)
    for _ in range(LOGINS):
        if not isinstance(result.error, AuthNeeded):
            break
        await log_in(host)
        result = await host.call(name, arguments, timeout=20)
    if result.is_error:
        FAILED.append(f"{name}: {result.text}")
    return result


async def use(host: Host, context: Mapping[str, Any]) -> None:
    """Everything that is there, once."""
    if "toolCalls" in context:
        for wanted in context["toolCalls"]:
            await call(host, wanted["name"], wanted.get("arguments", {}))
        return
    for tool in [tool for tool in host.catalog.tools.values() if tool.server == NAME and tool.verb == "call"]:
        fields: Mapping[str, Any] = tool.input_schema.get("properties", {})
        arguments = {name: example(field) for name, field in fields.items()}
        if tool.name == "json_schema_echo":  # wants to see a schema as it was listed
            arguments["schema"] = host.catalog.tools["json_schema_2020_12_tool"].input_schema
        await call(host, tool.name, arguments)
    for skill in host.skills() if "verify" in os.environ.get("MCP_CONFORMANCE_SCENARIO", "") else ():
        # As a model does: the instructions, and then a file that they mention.
        if not (await host.session().read_skill(skill.name)).is_error:
            for file in skill.files or ():
                await host.session().read_skill(
                    skill.name, file.uri.removeprefix(skill.uri[: -len("SKILL.md")])
                )
    for resource in host.catalog.resources:
        await host.read(resource.uri, server=NAME)
    for prompt in host.catalog.prompts:
        await host.prompt(NAME, prompt.name, {str(one["name"]): "text" for one in prompt.arguments})


async def main(url: str) -> int:
    context: Mapping[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    server = settings(url, context, scenario)
    # The suite's own resources, which look like files of this machine.
    config = HostConfig(
        servers=(server,), style="raw", resource_uri_allowlist=("file", "https", "skill", "test")
    )
    async with Host(config, on_elicit=accept, lock=False) as host:
        await host.ready(20)
        for _ in range(LOGINS):
            [status] = host.status()
            if status.state == "connected" or "login" not in (status.error or ""):
                break
            await log_in(host)
        [status] = host.status()
        if status.state != "connected":
            print(f"not connected: {status.error}", file=sys.stderr)
            return 1
        await use(host, context)
    if FAILED and not scenario.startswith(REFUSING):
        print("these calls failed:", *FAILED, sep="\n", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    os.environ["MOORING_HOME"] = tempfile.mkdtemp()
    sys.exit(asyncio.run(main(sys.argv[-1])))
