"""Google's GenAI SDK: the loop is yours, mooring gives the tools and answers the calls."""

import asyncio

from google.genai import types
from harbour import QUESTION, script, servers
from scripted import http

from mooring import Host
from mooring.adapters import google_genai


async def main() -> None:
    plan = script()
    async with Host(servers()) as host:
        await host.ready(20)
        session = host.session("chat-1")
        contents = [types.Content(role="user", parts=[types.Part(text=QUESTION)])]
        while True:
            config = types.GenerateContentConfig.model_validate({"tools": google_genai.tools(session)})
            # reply = await Client().aio.models.generate_content(model=…, contents=contents, config=config)
            reply = scripted(plan, contents, config)
            parts = await google_genai.results(session, reply)
            if not parts:
                print(reply.candidates[0].content.parts[0].text)
                return
            contents.append(reply.candidates[0].content)
            contents.append(types.Content.model_validate({"role": "user", "parts": parts}))


def scripted(plan, contents, config) -> types.GenerateContentResponse:
    """What the service would answer."""
    request = {
        "contents": [
            content.model_dump(by_alias=True, exclude_none=True, mode="json") for content in contents
        ],
        "tools": [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in config.tools],
    }
    return types.GenerateContentResponse.model_validate(http.generate_content(plan, request))


asyncio.run(main())
