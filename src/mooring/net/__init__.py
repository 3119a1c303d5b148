"""The wire: the only code, with the gateway, that knows the MCP SDK."""
