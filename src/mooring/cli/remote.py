"""A running gateway, asked through its admin API: what `--gateway URL` does."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from mooring.cli.options import Options, UsageError
from mooring.cli.output import Output
from mooring.core import events
from mooring.core.text import clean_line
from mooring.errors import AuthNeeded, MooringError

if TYPE_CHECKING:
    import aiohttp

TOKEN = "MOORING_GATEWAY_TOKEN"
TIMEOUT = 30.0
MAX_LINE = 2**20


class RemoteGateway:
    """The admin API of the gateway at `--gateway`."""

    def __init__(self, options: Options) -> None:
        assert options.gateway is not None
        self._options = options
        self.url = options.gateway.rstrip("/").removesuffix("/mcp")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--gateway needs a URL such as https://mcp.example.com, not {self.url!r}.")
        if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise UsageError("--gateway sends a token: use https, except for a gateway on this machine.")
        self._token = os.environ.get(TOKEN, "")
        if not self._token:
            raise UsageError(
                f"Set {TOKEN} to a token with the scope `admin`: `mooring token create NAME --scope admin`."
            )

    async def get(self, path: str) -> Any:
        return await self.send("GET", path)

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer to one request.

        Raises:
            MooringError: There is none, or the gateway refused it.
        """
        async with self._answer(method, path, body, self._options.timeout or TIMEOUT) as answer:
            return await answer.json(content_type=None)

    async def print_events(self, out: Output) -> None:
        """Print each event of the gateway until it ends."""
        from mooring.cli.watch_view import event_line

        async with self._answer("GET", "/events", None, None) as answer:
            async for line in answer.content:
                if not line.startswith(b"data: "):
                    continue
                said = json.loads(line[6:])
                if self._options.json:
                    out.json_line(said)
                elif (text := event_line(_event(said))) is not None:
                    out.line(f"{time.strftime('%H:%M:%S', time.localtime(said['time']))}  {text[0]}")
                out.flush()

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None, total: float | None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=total, sock_connect=TIMEOUT)
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True, read_bufsize=MAX_LINE) as http,
                http.request(
                    method, f"{self.url}/admin/v1{path}", json=body, headers=headers, allow_redirects=False
                ) as answer,
            ):
                if answer.status != 200:
                    raise await self._refused(answer)
                yield answer
        except TimeoutError:
            raise MooringError(f"The gateway at {self.url} did not answer in time.") from None
        except aiohttp.ClientConnectorCertificateError as problem:
            why = getattr(problem.certificate_error, "verify_message", "") or "it does not fit the URL"
            raise MooringError(
                f"The certificate of the gateway at {self.url} is not trusted: {clean_line(why)}. "
                "If it is of your own authority, set SSL_CERT_FILE to the PEM file of that."
            ) from None
        except (aiohttp.ClientError, ValueError) as problem:
            reason = clean_line(str(problem).replace(self._token, "***"))
            raise MooringError(f"The gateway at {self.url} cannot be asked: {reason}") from None

    async def _refused(self, answer: aiohttp.ClientResponse) -> MooringError:
        try:
            said = str((await answer.json(content_type=None))["error"])
            if answer.status == 404:  # a name that does not exist there
                said = clean_line(said)[:500]
                return UsageError(f"{said[:1].upper()}{said[1:]}{'' if said.endswith(('.', '?')) else '.'}")
        except (ValueError, KeyError, TypeError):
            said = f"status {answer.status}; is this the URL of a mooring gateway?"
        text = f"The gateway at {self.url} refused: {clean_line(said)[:500]}"
        if answer.status in (401, 403):
            return AuthNeeded(f"{text}. {TOKEN} needs a token with the scope `admin`.", server="gateway")
        return MooringError(text)


def _event(said: Mapping[str, Any]) -> events.Event:
    """Return the event that a line describes; unknown ones become a bare event."""
    name = str(said["event"])
    kind: Any = getattr(events, name, events.Event) if name in events.__all__ else events.Event
    given: dict[str, Any] = {
        key: tuple(cast("list[Any]", value)) if isinstance(value, list) else value
        for key, value in said.items()
    }
    try:
        return kind(**{key: value for key, value in given.items() if key not in ("event", "time")})
    except TypeError:  # of a newer version
        return events.Event()
