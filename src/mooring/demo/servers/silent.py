"""A server that hears everything and never answers."""

import sys

for _ in sys.stdin.buffer:
    pass
