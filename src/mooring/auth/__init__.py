"""OAuth for HTTP servers: metadata, login, tokens."""
