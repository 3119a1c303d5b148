"""smolagents, which does not await: a SyncHost."""

from harbour import QUESTION, script, servers
from scripted.smolagents import ScriptedModel
from smolagents import ToolCallingAgent

from mooring import SyncHost
from mooring.adapters import smolagents

with SyncHost(servers()) as host:
    host.ready(20)
    model = ScriptedModel(script())  # model = InferenceClientModel()
    agent = ToolCallingAgent(model=model, tools=smolagents.tools(host), verbosity_level=0)
    print(agent.run(QUESTION))
