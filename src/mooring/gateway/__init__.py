"""The catalog of a host, served as one MCP server: `await serve(host, ...)`."""
