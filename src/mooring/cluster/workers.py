"""`serve --workers`: nodes of one machine that share a port and reach each other over Unix sockets.

What requests of a principal share without an id is kept by one worker, chosen by a hash. The set of workers
is fixed: one that ends is started again under its name, and requests for it wait meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp

from mooring.cluster import limits as counts
from mooring.cluster.forward import PeerNode
from mooring.cluster.metrics import Retired, merged
from mooring.cluster.nodes import NodeCluster, new_incarnation
from mooring.config.logs import logger
from mooring.errors import ConfigError
from mooring.gateway.nodes import NodeId
from mooring.gateway.shutdown import SAME
from mooring.gateway.web import Denied, Response, WebRequest, document
from mooring.servers import requests

if TYPE_CHECKING:
    from mooring.config.models import HostConfig
    from mooring.config.sections import ProfileSettings
    from mooring.gateway.clients import Principal, SessionRegistry
    from mooring.gateway.profiles import Profile

assert sys.platform != "win32"  # no Unix sockets, and no port that processes share

__all__ = ["WorkerNodes", "run_workers", "this_worker"]

log = logger("mooring.cluster")

_MARK = "MOORING_GATEWAY_WORKER"
RESTART_DELAY = 1.0
ASK_TIMEOUT = 5.0
ADMIN_TIMEOUT = 30.0
HOME_TIMEOUT = 20.0
"""Seconds for which a request waits for a worker that is started again."""
END_WAIT = 3.0
"""Seconds after a second SIGTERM until workers that still run are killed."""
_POLL = 0.05


class WorkerNodes(NodeCluster):
    """The workers of one machine, as one of them sees them."""

    def __init__(self, folder: str, key: bytes, count: int, number: int, port: int) -> None:
        names = [f"worker-{one}" for one in range(count)]
        self.grace = 0.0  # all of them end together
        super().__init__(NodeId(names[number], new_incarnation()), [key])
        self.folder, self.port = folder, port
        self.names = tuple(names)
        self.socket = _socket(folder, self.me.name)
        self.peers = {
            name: PeerNode(name, "http://localhost", socket=_socket(folder, name))
            for name in names
            if name != self.me.name
        }
        self._table = counts.ClientTable(folder, count, number)
        self._sessions = counts.SharedSessions(self._table)
        self._retired = Retired(folder)
        requests.shared_gate = partial(counts.SharedGate, folder)

    def check(self, config: HostConfig, default_profile: ProfileSettings) -> None:
        if config.gateway.nodes:
            raise ConfigError("`--workers` does not work with `gateway.nodes`: run one process for each node")
        found = [one.name for one in config.active if one.placement == "cluster"]
        if found:
            raise ConfigError(
                f"server {found[0]!r} has `placement: cluster`, which `--workers` does not have; remove it, "
                "or run nodes with `--cluster nats://…`"
            )

    async def stop(self) -> None:
        if self._routes is not None:
            self._retired.note(self.me.incarnation, self._routes.own_metrics())
        await super().stop()
        if _parent_ended():  # it was killed and cannot clean up
            for _ in range(10):
                if _removed(self.folder):
                    break
                await asyncio.sleep(0.05)  # another worker writes or removes there at the same moment

    # --- limits ---------------------------------------------------------------------------------

    def limits(self, **settings: Any) -> counts.SharedLimits:
        return counts.SharedLimits(self._table, **settings)

    def session_counts(self) -> counts.SharedSessions:
        return self._sessions

    async def make_room(self, account: str, asking: str) -> bool:
        if account != counts.EVERYONE:
            return await self._end_idle(account)
        found = {self._registry.majority()}
        found |= {one.get("majority") for one in (await self._ask_all("/peer/sessions")).values()}
        large = {one for one in found if one and 2 * self._sessions.of(one) > self.settings.max_sessions}
        for one in (*(large - {asking}), asking):
            if await self._end_idle(one):
                return True
        return False

    async def _end_idle(self, account: str) -> bool:
        """End the session of an account that was idle for longest, on any worker; False if there is none."""
        idle = {name: one.get("idle") for name, one in (await self._ask_all(_about(account))).items()}
        if (own := self._registry.longest_idle(account)) is not None:
            idle[self.me.name] = own.used
        known = {name: used for name, used in idle.items() if used is not None}
        if not known:
            return False
        oldest = min(known, key=lambda name: known[name])
        if oldest == self.me.name and own is not None:
            await self._registry.end(own)
            return True
        async with self.ask(self.peers[oldest], "DELETE", _about(account)) as response:
            return (await response.json()).get("ended") is True

    @property
    def _registry(self) -> SessionRegistry:
        assert self._routes is not None
        return self._routes.gateway.registry

    async def _ask_all(self, path: str) -> dict[str, dict[str, Any]]:
        """Ask every other worker; return the documents of those that answer."""

        async def answer(peer: PeerNode) -> dict[str, Any] | None:
            for _ in range(2):
                if peer.incarnation is None:
                    await self.probe(peer)
                try:
                    async with asyncio.timeout(ASK_TIMEOUT), self.ask(peer, "GET", path) as response:
                        if response.status == 200:
                            return await response.json()
                except TimeoutError:
                    return None  # it stands still
                except (aiohttp.ClientError, OSError, ValueError):
                    pass
                peer.incarnation = None  # it has ended, or was started again
            return None

        peers = list(self.peers.values())
        answers = await asyncio.gather(*map(answer, peers))
        return {peer.name: one for peer, one in zip(peers, answers, strict=True) if one is not None}

    async def peer(self, request: WebRequest, path: str) -> Response | None:
        if path == "/peer/sessions":
            account = request.query.get("account", "")
            idle = self._registry.longest_idle(account)
            if request.method == "DELETE":
                if idle is not None:
                    await self._registry.end(idle)
                return document({"ended": idle is not None})
            return document(
                {"idle": None if idle is None else idle.used, "majority": self._registry.majority()}
            )
        if path == "/peer/metrics":
            assert self._routes is not None
            return document({"incarnation": self.me.incarnation, "text": self._routes.own_metrics()})
        return await super().peer(request, path)

    # --- metrics --------------------------------------------------------------------------------

    async def metrics(self, own: str) -> str:
        """The sums over all workers, also over those that have ended."""
        self._retired.note(self.me.incarnation, own)
        answers = await self._ask_all("/peer/metrics")
        texts, running = [own], {self.me.incarnation}
        for one in answers.values():
            texts.append(one["text"])
            running.add(one["incarnation"])
            self._retired.note(one["incarnation"], one["text"])
        silent = [peer for name, peer in self.peers.items() if name not in answers and peer.up]
        running |= {str(peer.incarnation) for peer in silent}  # it stands still: not ended
        return merged(texts, self._retired.ended(running))

    async def admin(self, request: WebRequest, body: bytes | None) -> list[Any]:
        async def answer(peer: PeerNode) -> Any:
            if peer.incarnation is None:
                await self.probe(peer)
            if peer.incarnation is None:
                return None
            try:
                async with asyncio.timeout(ADMIN_TIMEOUT):
                    response = await self.forward(request, NodeId(peer.name, peer.incarnation), body)
            except (Denied, TimeoutError):  # it has ended, or stands still
                return None
            return json.loads(response.body) if response is not None and response.status == 200 else None

        found = await asyncio.gather(*map(answer, self.peers.values()))
        request.forwarded = False  # this worker answers
        return [one for one in found if one is not None]

    # --- state of principals --------------------------------------------------------------------

    async def home(
        self, profile: Profile, principal: Principal, server: str | None, message: Mapping[str, Any]
    ) -> NodeId | None:
        name = home_of(self.names, f"{profile.name}:{principal.name}")
        if name == self.me.name:
            return self.me
        peer = self.peers[name]
        until = time.monotonic() + HOME_TIMEOUT
        while peer.incarnation is None and time.monotonic() < until:
            await self.probe(peer)
            if peer.incarnation is None:
                await asyncio.sleep(_POLL)
        if peer.incarnation is None:
            raise Denied(503, f"{name} does not answer; try again later", {"Retry-After": "2"})
        return NodeId(name, peer.incarnation)


def _about(account: str) -> str:
    return f"/peer/sessions?account={quote(account, safe='')}"


def home_of(names: tuple[str, ...], key: str) -> str:
    """Return the name that keeps what belongs to a key: the same for the same names (rendezvous hashing)."""
    return max(names, key=lambda name: sha256(f"{name}\0{key}".encode()).digest())


def _parent_ended() -> bool:
    """Whether the process that started this worker is gone: it alone holds the other end of standard input.
    The parent's id is no sign, it stays for a moment after the end of standard input."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)
    return bool(poll.poll(0))


def _removed(folder: str) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not Path(folder).exists()


def _socket(folder: str, name: str) -> str:
    return str(Path(folder, f"{name}.sock"))


def this_worker() -> WorkerNodes | None:
    """Return the workers if this process is one of them."""
    text = os.environ.get(_MARK)
    if text is None:
        return None
    given = json.loads(text)
    return WorkerNodes(
        given["folder"], bytes.fromhex(given["key"]), given["count"], given["number"], given["port"]
    )


async def run_workers(count: int, bind: str, port: int, listening: Callable[[str], None]) -> int:
    """Run this command in `count` processes and restart those that exit, until SIGTERM or SIGINT. Return the
    exit code.

    `listening` is called once, with the URL, when the first of them listens. Port 0 is one free port for all.

    Raises:
        ConfigError: The port is in use.
    """
    loop = asyncio.get_running_loop()
    # Bound and never listening: it keeps the port for the workers and gets no connections.
    try:
        reserved = await loop.create_server(
            asyncio.Protocol, bind, port, reuse_port=True, start_serving=False
        )
    except OSError as problem:
        raise ConfigError(f"Cannot listen on {bind}:{port}: {problem.strerror or problem}") from None
    folder = tempfile.mkdtemp(prefix="mooring-")  # for this user only
    shared = {
        "folder": folder,
        "key": os.urandom(32).hex(),
        "count": count,
        "port": reserved.sockets[0].getsockname()[1],
    }
    supervisor = _Supervisor(shared, listening)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.pass_on, number)
    try:
        await asyncio.gather(*(supervisor.keep(number) for number in range(count)))
    finally:
        reserved.close()
        shutil.rmtree(folder, ignore_errors=True)
    return supervisor.code


class _Supervisor:
    """Starts the workers, and starts those again that exit."""

    def __init__(self, shared: Mapping[str, Any], listening: Callable[[str], None]) -> None:
        self._shared, self._listening = shared, listening
        self._ending = asyncio.Event()
        self._ended_at = float("inf")
        self._running: set[asyncio.subprocess.Process] = set()
        self._reported = False
        self.code = 0

    def pass_on(self, number: int) -> None:
        """Pass a signal on to all workers; all but SIGHUP end them. After the second one, workers that do not
        react are killed."""
        again = number != signal.SIGHUP and time.monotonic() > self._ended_at + SAME
        if number != signal.SIGHUP and not self._ending.is_set():
            self._ended_at = time.monotonic()
            self._ending.set()
        for process in self._running:
            if process.returncode is None:
                process.send_signal(number)
                if again:
                    asyncio.get_running_loop().call_later(END_WAIT, self._kill, process)

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            process.kill()

    async def keep(self, number: int) -> None:
        """Keep one worker running."""
        mark = json.dumps({**self._shared, "number": number})
        while not self._ending.is_set():
            # A worker ends when its standard input does, so that it does not outlive a killed parent.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "mooring", *sys.argv[1:]),
                env={**os.environ, _MARK: mark},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            self._running.add(process)
            if process.stdout is not None:
                await self._report(process.stdout)
            code = await process.wait()
            self._running.discard(process)
            self._clear(number)
            if code == 2:  # invalid configuration: restarting does not help
                self.code = code
                self._ending.set()
            elif not self._ending.is_set():
                log.warning("worker ended, it is started again number=%d code=%d", number, code)
                await asyncio.sleep(RESTART_DELAY)

    def _clear(self, number: int) -> None:
        """Forget the running requests and sessions of a worker that ended."""
        counts.ClientTable(self._shared["folder"], self._shared["count"], number).close()

    async def _report(self, output: asyncio.StreamReader) -> None:
        """Report the first URL, or with `--json` the first error; standard output holds one document."""
        line = await output.readline()
        rest = b"" if line.startswith(b"http") else await output.read()
        if self._reported or not line:
            return
        self._reported = True
        if line.startswith(b"http"):
            self._listening(line.decode().strip())
        else:
            sys.stdout.write((line + rest).decode())
