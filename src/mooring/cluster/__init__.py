"""Several gateway processes that serve the same clients: workers of one machine, and nodes of several."""
