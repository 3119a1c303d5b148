"""The tools of a host or a session in the shape that each agent framework takes: one module per framework.

    from mooring.adapters import langchain

    agent = create_agent(model, langchain.tools(session))

    tools(source)            what the framework is given; `source` is a host or a session, sync or not
    results(source, reply)   for model APIs without an agent loop: the answers to the calls in a reply
    live(source)             the same tools for a framework that can ask for them again before each turn

Importing a module whose framework is missing raises an `ImportError` that names the extra to install;
importing this one needs none of them.
"""
