"""A clock over stdio, modern era (2026-07-28): no handshake, stateless requests."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from typing import Any

from protocol import DemoTool, Server, serve_stdio


def now(offset_hours: int = 0) -> tuple[str, Any]:
    moment = datetime.now(_zone(offset_hours)).isoformat(timespec="seconds")
    return moment, {"time": moment, "pid": os.getpid()}


def convert(time: str, offset_hours: int) -> tuple[str, Any]:
    moment = datetime.fromisoformat(time).astimezone(_zone(offset_hours)).isoformat(timespec="seconds")
    return moment, {"time": moment}


def _zone(offset_hours: int) -> timezone:
    return timezone(timedelta(hours=offset_hours))


OFFSET = {"type": "integer", "minimum": -12, "maximum": 14, "description": "Hours east of UTC"}

if __name__ == "__main__":
    serve_stdio(
        Server(
            name="clock",
            era="modern",
            instructions="Times are ISO 8601. Time zones are hours east of UTC.",
            tools={
                "now": DemoTool(
                    description="The current time, and the process id of the server.",
                    properties={"offset_hours": OFFSET},
                    handler=now,
                ),
                "convert": DemoTool(
                    description="Convert a time to another time zone.",
                    properties={"time": {"type": "string", "format": "date-time"}, "offset_hours": OFFSET},
                    required=("time", "offset_hours"),
                    handler=convert,
                ),
            },
        )
    )
