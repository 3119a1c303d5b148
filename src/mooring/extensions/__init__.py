"""Extensions of the protocol for applications: pages of tools (MCP Apps) and skills."""
