"""Detection of values that look like secrets, which are never shown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.secret_scan import is_secret, masked, masked_text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GITHUB_TOKEN", "abc"),
        ("Authorization", "Bearer abc"),
        ("x-api-key", "abc"),
        ("clientSecret", "abc"),
        ("DATABASE", "postgres://user:word@host/db"),
        ("ANY", "ghp_0123456789abcdef"),
        ("ANY", "${X:-ghp_0123456789abcdef}"),
        ("ID", "d3b07384d113edec49eaa6238ad5ff00"),
    ],
)
def test_secrets(name: str, value: str) -> None:
    assert is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GITHUB_TOKEN", "${GITHUB_TOKEN}"),
        ("Authorization", "Bearer ${X}"),
        ("GITHUB_TOKEN", ""),
        ("NODE_ENV", "production"),
        ("MAX_TOKENS", "4000"),
        ("TOKEN_FILE", "/run/secrets/token"),
        ("KEYCLOAK_URL", "https://auth.example.com"),
        ("AUTH", "none"),
        ("bearer_token_env_var", "GITHUB_TOKEN"),
        ("args", "@modelcontextprotocol/server-github"),
        ("args", "mcp-server-filesystem-2025.11.2"),
    ],
)
def test_no_secrets(name: str, value: str) -> None:
    assert not is_secret(name, value)


secrets = st.text("abcdefXYZ0123456789-_!", min_size=4, max_size=30).map(lambda text: f"q7{text}q7")


@given(secret=secrets)
def test_no_planted_secret_survives_masking(secret: str) -> None:
    data = {
        "env": {"MY_TOKEN": secret},
        "headers": {"Authorization": f"Bearer {secret}"},
        "args": ["--api-key", secret, f"--password={secret}"],
        "url": "https://x.example.com/",
        "oauth": {"clientSecret": secret},
    }
    assert secret not in json.dumps(masked(data))
    assert secret not in masked_text(json.dumps(data, indent=2), [data])
