"""Byte transports: child processes, HTTP and legacy SSE."""
