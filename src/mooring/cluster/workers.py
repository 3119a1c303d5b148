"""`serve --workers`: nodes of one machine that share a port and reach each other over Unix sockets.

What requests of a principal share without an id is kept by one worker, chosen by a hash. The set of workers
is fixed: one that ends is started again under its name, and requests for it wait meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.cluster.forward import Peer
from mooring.cluster.nodes import NodeCluster, new_incarnation
from mooring.config.logs import logger
from mooring.errors import ConfigError
from mooring.gateway.nodes import NodeId
from mooring.gateway.web import Denied

if TYPE_CHECKING:
    from mooring.config.models import HostConfig
    from mooring.config.sections import ProfileSettings
    from mooring.gateway.clients import Principal
    from mooring.gateway.profiles import Profile

__all__ = ["Workers", "run_workers", "this_worker"]

log = logger("mooring.cluster")

_MARK = "MOORING_GATEWAY_WORKER"
RESTART_DELAY = 1.0
HOME_TIMEOUT = 20.0
"""Seconds for which a request waits for a worker that is started again."""
_POLL = 0.05


class Workers(NodeCluster):
    """The workers of one machine, as one of them sees them."""

    def __init__(self, folder: str, key: bytes, count: int, number: int, port: int) -> None:
        names = [f"worker-{one}" for one in range(count)]
        super().__init__(NodeId(names[number], new_incarnation()), [key])
        self.folder, self.port = folder, port
        self.names = tuple(names)
        self.socket = _socket(folder, self.me.name)
        self.peers = {
            name: Peer(name, "http://localhost", socket=_socket(folder, name))
            for name in names
            if name != self.me.name
        }
        self._parent = os.getppid()

    def check(self, config: HostConfig, default_profile: ProfileSettings) -> None:
        if config.gateway.nodes:
            raise ConfigError("`--workers` does not work with `gateway.nodes`: run one process for each node")
        found = [one.name for one in config.active if one.placement == "cluster"]
        if found:
            raise ConfigError(
                f"server {found[0]!r} has `placement: cluster`, which `--workers` does not have; remove it, or "
                "run nodes with `--cluster nats://…`"
            )

    async def stop(self) -> None:
        await super().stop()
        if os.getppid() != self._parent:  # it was killed and cannot clean up
            shutil.rmtree(self.folder, ignore_errors=True)

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


def home_of(names: tuple[str, ...], key: str) -> str:
    """Return the name that keeps what belongs to a key: the same for the same names (rendezvous hashing)."""
    return max(names, key=lambda name: sha256(f"{name}\0{key}".encode()).digest())


def _socket(folder: str, name: str) -> str:
    return str(Path(folder, f"{name}.sock"))


def this_worker() -> Workers | None:
    """Return the workers if this process is one of them."""
    text = os.environ.get(_MARK)
    if text is None:
        return None
    given = json.loads(text)
    return Workers(
        given["folder"], bytes.fromhex(given["key"]), given["count"], given["number"], given["port"]
    )


async def run_workers(count: int, bind: str, port: int, listening: Callable[[str], None]) -> int:
    """Run this command in `count` processes and restart those that exit, until SIGTERM or SIGINT. Return the
    exit code.

    `listening` is called once, with the URL, when the first of them listens. Port 0 is one free port for all.

    Raises:
        OSError: The port is in use.
    """
    loop = asyncio.get_running_loop()
    # Bound and never listening: it keeps the port for the workers and gets no connections.
    reserved = await loop.create_server(asyncio.Protocol, bind, port, reuse_port=True, start_serving=False)
    folder = tempfile.mkdtemp(prefix="mooring-")  # for this user only
    shared = {
        "folder": folder,
        "key": os.urandom(32).hex(),
        "count": count,
        "port": reserved.sockets[0].getsockname()[1],
    }
    supervisor = _Supervisor(shared, listening)
    if sys.platform != "win32":  # there, Ctrl-C reaches each process of the console
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
        self._running: set[asyncio.subprocess.Process] = set()
        self._reported = False
        self.code = 0

    def pass_on(self, number: int) -> None:
        """Pass a signal on to all workers; all but SIGHUP end them."""
        if sys.platform == "win32" or number != signal.SIGHUP:
            self._ending.set()
        for process in self._running:
            if process.returncode is None:
                process.send_signal(number)

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
            if code == 2:  # invalid configuration: restarting does not help
                self.code = code
                self._ending.set()
            elif not self._ending.is_set():
                log.warning("worker ended, it is started again number=%d code=%d", number, code)
                await asyncio.sleep(RESTART_DELAY)

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
