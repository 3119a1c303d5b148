"""OpenAI's Responses API: the loop is yours, mooring gives the tools and answers the calls."""

import asyncio

from harbour import QUESTION, script, servers
from scripted import http

from mooring import Host
from mooring.adapters import openai


async def main() -> None:
    plan = script()
    async with Host(servers()) as host:
        await host.ready(20)
        session = host.session("chat-1")
        items: list = [{"role": "user", "content": QUESTION}]
        while True:
            request = {"model": "gpt-5", "input": items, "tools": openai.tools(session)}
            reply = http.responses(plan, request)  # reply = await AsyncOpenAI().responses.create(**request)
            answers = await openai.results(session, reply)
            items += [*reply["output"], *answers]  # items += [*reply.output, *answers]
            if not answers:
                print(reply["output"][0]["content"][0]["text"])  # print(reply.output_text)
                return


asyncio.run(main())
