"""A server that reads all requests and never answers."""

import sys

for _ in sys.stdin.buffer:
    pass
