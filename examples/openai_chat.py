"""OpenAI's Chat API, and the many that speak it, without an event loop."""

from harbour import QUESTION, script, servers
from scripted import http

from mooring import SyncHost
from mooring.adapters import openai

plan = script()
with SyncHost(servers()) as host:
    host.ready(20)
    messages: list = [{"role": "user", "content": QUESTION}]
    while True:
        request = {"model": "gpt-5", "messages": messages, "tools": openai.tools(host, api="chat")}
        reply = http.chat(plan, request)  # reply = OpenAI().chat.completions.create(**request).model_dump()
        answers = openai.results(host, reply)
        messages += [reply["choices"][0]["message"], *answers]
        if not answers:
            print(messages[-1]["content"])
            break
