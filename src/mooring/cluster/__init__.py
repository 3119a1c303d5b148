"""Nodes of a gateway."""
