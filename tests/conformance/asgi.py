"""The gateway as an ASGI application under uvicorn: `python asgi.py CONFIG PORT`."""

from __future__ import annotations

import sys

import uvicorn

from mooring import Host
from mooring.gateway import ClientBridge, asgi_app

if __name__ == "__main__":
    host = Host.from_config(sys.argv[1], style="raw", lock=False, relay=ClientBridge())
    uvicorn.run(asgi_app(host), port=int(sys.argv[2]), log_level="error", timeout_graceful_shutdown=5)
