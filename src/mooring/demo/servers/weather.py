"""A weather server over HTTP, modern era: each POST has one JSON response.

Listens on a free loopback port, prints its URL as the first line, and exits at the end of standard input, so
that it ends with its parent process.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from protocol import DemoTool, Server

STATIONS = {"Hamburg": (11, "rain"), "Lisbon": (19, "sun"), "Oslo": (-3, "snow")}


def forecast(city: str) -> tuple[str, Any]:
    if city not in STATIONS:
        raise ValueError(f"there is no forecast for {city!r}; choose one of: {', '.join(STATIONS)}")
    celsius, sky = STATIONS[city]
    return f"{city}: {celsius} °C, {sky}", {"city": city, "celsius": celsius, "sky": sky}


SERVER = Server(
    name="weather",
    era="modern",
    instructions="Invented weather for three cities: Hamburg, Lisbon, Oslo.",
    tools={
        "forecast": DemoTool(
            description="The weather in a city.",
            properties={"city": {"type": "string", "enum": list(STATIONS)}},
            required=("city",),
            handler=forecast,
        )
    },
)


class WeatherHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        reply = SERVER.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = b"" if reply is None else json.dumps(reply).encode()
        # In the modern era the response to an unknown method has the status 404.
        self.send_response(202 if reply is None else 404 if "error" in reply else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class names it)
        """Print no access log."""


if __name__ == "__main__":
    endpoint = ThreadingHTTPServer(("127.0.0.1", 0), WeatherHandler)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{endpoint.server_address[1]}/mcp\n")
    sys.stdout.flush()
    sys.stdin.read()
