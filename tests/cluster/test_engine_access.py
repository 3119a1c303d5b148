"""Access of nodes to the engine with an nkey, and with a credentials file."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import nkeys
import pytest

from tests.cluster.engine_lab import engine_nodes, errors_of
from tests.cluster.lab import free_ports

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(180)]

UNLIMITED = {
    **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1),
    "wildcards": True,
}
STORAGE = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


def key_pair(prefix: int) -> tuple[str, Any, str]:
    """Seed, key pair and public key."""
    seed = nkeys.encode_seed(os.urandom(32), prefix)
    pair = nkeys.from_seed(seed)
    return seed.decode(), pair, pair.public_key.decode()


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(by: tuple[str, Any, str], subject: str, name: str, kind: str, **claims: Any) -> str:
    """A token of NATS: signed by an operator for an account, or by an account for a user."""
    body = {
        "jti": name,
        "iat": int(time.time()),
        "iss": by[2],
        "name": name,
        "sub": subject,
        "nats": {"type": kind, "version": 2, **claims},
    }
    text = ".".join(
        encoded(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body)
    )
    return f"{text}.{encoded(by[1].sign(text.encode()))}"


def credentials(file: Path, account: tuple[str, Any, str]) -> str:
    """Write the credentials file of a user of an account; return its path."""
    seed, _, public = key_pair(nkeys.PREFIX_BYTE_USER)
    token = signed(account, public, "node", "user", pub={}, sub={}, subs=-1, data=-1, payload=-1)
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    file.chmod(0o600)
    return str(file)


async def refused(cluster: Any, secrets: dict[str, str], file: Path | None = None) -> str:
    """Start one more node; return what it says when it is refused."""
    [port] = free_ports(1)
    node = cluster.node("z", port, cluster.engine.port, **({} if file is None else {"file": file}))
    node.environment |= secrets
    node.start()
    assert await asyncio.to_thread(node.process.wait, 60) == 2
    return node.errors.read_text()


async def test_a_node_reaches_an_engine_with_an_nkey_and_not_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (seed, _, public), (other, _, _) = (key_pair(nkeys.PREFIX_BYTE_USER) for _ in range(2))
    config = tmp_path / "nats.conf"
    config.write_text(f"authorization {{ users = [ {{ nkey: {public} }} ] }}\n")
    monkeypatch.setenv("NATS_TEST_NKEY", seed)
    access = {"nkey": "${NATS_TEST_NKEY}"}
    async with engine_nodes(tmp_path, 1, options=("-c", str(config)), cluster=access) as cluster:
        client = await cluster.nodes.caller(0, modern=True)
        assert (await client.call("pid")).status == 200, errors_of(cluster)
        said = await refused(cluster, {"NATS_TEST_NKEY": other})
        assert "cannot be used" in said
        assert other not in said
        assert "Traceback" not in said
        said = await refused(cluster, {"NATS_TEST_NKEY": "no seed at all"})
        assert "cannot be used" in said
        assert "no seed at all" not in said
        assert "Traceback" not in said


async def test_a_node_reaches_an_engine_with_a_credentials_file_and_not_with_that_of_another_operator(
    tmp_path: Path,
) -> None:
    operator, stranger = key_pair(nkeys.PREFIX_BYTE_OPERATOR), key_pair(nkeys.PREFIX_BYTE_ACCOUNT)
    account, system = (key_pair(nkeys.PREFIX_BYTE_ACCOUNT) for _ in range(2))
    preload = {
        one[2]: signed(operator, one[2], name, "account", limits={**UNLIMITED, **more})
        for name, one, more in (("nodes", account, STORAGE), ("system", system, {}))
    }
    lines = [f"  {public}: {token}" for public, token in preload.items()]
    config = tmp_path / "nats.conf"
    config.write_text(
        f"operator: {signed(operator, operator[2], 'operator', 'operator')}\nsystem_account: {system[2]}\n"
        "resolver: MEMORY\nresolver_preload: {\n" + "\n".join(lines) + "\n}\n"
    )
    good = credentials(tmp_path / "node.creds", account)
    access = {"credentials": good}
    async with engine_nodes(tmp_path, 1, options=("-c", str(config)), cluster=access) as cluster:
        client = await cluster.nodes.caller(0, modern=True)
        assert (await client.call("pid")).status == 200, errors_of(cluster)
        for bad in (credentials(tmp_path / "other.creds", stranger), str(tmp_path / "missing.creds")):
            file = tmp_path / "other.json"
            file.write_text(cluster.file.read_text().replace(good, bad))
            said = await refused(cluster, {}, file)
            assert "cannot be used" in said
            assert "Traceback" not in said
            assert "NKEY SEED" not in said
