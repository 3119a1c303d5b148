"""The tools of a host or a session as tools of an agent framework or model API: one module for each.

    from mooring.adapters import langchain

    agent = create_agent(model, langchain.tools(session))

    tools(source)            tools for the framework; `source` is a host or a session, sync or async
    results(source, reply)   for model APIs: runs the calls in a reply and returns the answers
    live(source)             tools for a framework that can list them again before each turn

Importing the module of a missing framework raises an `ImportError` that names the extra to install.
"""
