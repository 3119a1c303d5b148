"""Connections to servers: started, kept, listed and called."""
