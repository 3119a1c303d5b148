"""Simon Willison's llm: a chain of prompts and tool calls."""

from harbour import QUESTION, script, servers
from scripted.llm import ScriptedModel

from mooring import SyncHost
from mooring.adapters import llm

with SyncHost(servers()) as host:
    host.ready(20)
    model = ScriptedModel(script())  # model = llm.get_model("gpt-5")
    print(model.chain(QUESTION, tools=llm.tools(host)).text())
