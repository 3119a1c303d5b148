"""Anthropic's Messages API: the loop is yours, mooring gives the tools and answers the calls."""

import asyncio

from harbour import QUESTION, script, servers
from scripted import http

from mooring import Host
from mooring.adapters import anthropic


async def main() -> None:
    plan = script()
    async with Host(servers()) as host:
        await host.ready(20)
        session = host.session("chat-1")
        messages: list = [{"role": "user", "content": QUESTION}]
        while True:
            request = {"model": "claude-opus-5", "max_tokens": 1000, "messages": messages}
            request["tools"] = anthropic.tools(session)
            # reply = (await AsyncAnthropic().messages.create(**request)).model_dump()
            reply = http.messages(plan, request)
            answers = await anthropic.results(session, reply)
            if not answers:
                print(reply["content"][0]["text"])
                return
            messages += [
                {"role": "assistant", "content": reply["content"]},
                {"role": "user", "content": answers},
            ]


asyncio.run(main())
