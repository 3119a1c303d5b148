"""Programs of a model that call the tools of a session, in a sandbox."""
