"""What commands print when the settings of a cluster, or its engine, cannot be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import free_ports

pytestmark = pytest.mark.cluster


def said(folder: Path, cluster: dict[str, Any], *words: str) -> str:
    """Run `mooring cluster status`, which fails; return what it prints."""
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {}, "gateway": {"cluster": cluster}}))
    done = subprocess.run(
        [sys.executable, "-m", "mooring", "--config", str(file), "cluster", "status", *words],
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_an_engine_that_does_not_answer_is_reported_once(tmp_path: Path) -> None:
    [port] = free_ports(1)
    lines = said(tmp_path, {"url": f"nats://127.0.0.1:{port}"}).splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith(
        f"error: gateway.cluster: the engine at nats://127.0.0.1:{port} cannot be used"
    )
    assert "nats-server" in lines[0]


def test_an_address_without_a_scheme_is_shown_as_it_was_given(tmp_path: Path) -> None:
    expected = "must be the address of a NATS server, such as nats://10.0.0.5:4222, not '10.0.0.9:4222'"
    assert f"gateway.cluster.url: {expected}" in said(tmp_path, {"url": "10.0.0.9:4222"})
    engine = {"url": "nats://127.0.0.1:1"}
    assert f"--cluster: {expected}" in said(tmp_path, engine, "--cluster", "10.0.0.9:4222")


def test_an_address_with_a_password_is_not_shown(tmp_path: Path) -> None:
    message = said(tmp_path, {"url": "me:hidden@10.0.0.9:4222"})
    assert "must not hold credentials" in message
    assert "hidden" not in message


def test_a_secret_without_a_value_names_its_setting(tmp_path: Path) -> None:
    engine = {"url": "nats://127.0.0.1:1", "user": "u", "password": "${NATS_PASSWORD_MISSING}"}
    message = said(tmp_path, engine)
    assert "gateway.cluster.password: no value for ${NATS_PASSWORD_MISSING}" in message
    assert "Set the environment variable NATS_PASSWORD_MISSING" in message
