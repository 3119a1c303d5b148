"""Other programs' configurations: where they are, how each reads and writes a server, what gets lost."""
