"""Diagnosis of a server, and the next command."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.models import ServerConfig
from mooring.core.types import ServerStatus, State
from mooring.servers.diagnosis import diagnose, unpinned_package


def reported(error: str | None, *, state: State = "failed", **entry: Any) -> tuple[str, str]:
    server = ServerConfig(**{"name": "git hub", **(entry or {"command": "thing"})})
    found = diagnose(server, ServerStatus(name="git hub", state=state, transport="stdio", error=error))
    assert found is not None
    return found.cause, found.next


CRASH = "the server exited with code 1\nits last lines on stderr:\n"
URL = {"url": "https://example.org/mcp"}


@pytest.mark.parametrize(
    ("error", "entry", "cause", "step"),
    [
        ("the command 'npx' was not found", {"command": "npx"}, "command-not-found", "nodejs.org"),
        ("the command 'uvx' was not found", {"command": "uvx"}, "command-not-found", "pip install uv"),
        ("the command 'my' was not found", {"command": "my"}, "command-not-found", "Install my"),
        ("its working directory '/x' does not exist", {}, "no-directory", "`cwd`"),
        ("the command './x' may not be run; is it", {"command": "./x"}, "not-executable", "chmod +x ./x"),
        (
            "field 'env.A': no value for ${A_KEY} and ${B}; provide",
            {},
            "missing-variable",
            "export A_KEY=…; export B=…",
        ),
        (
            f"{CRASH}No module named 'mcp.server.fastmcp'",
            {"command": "uvx"},
            "sdk-mismatch",
            "--with 'mcp<2'",
        ),
        (
            f"{CRASH}No module named 'mcp.server.fastmcp'",
            {"command": "python"},
            "sdk-mismatch",
            "pip install 'mcp<2'",
        ),
        (f"{CRASH}cannot import name 'FastMCP' from 'mcp.server'", {}, "sdk-mismatch", "'mcp<2'"),
        (
            f"{CRASH}AttributeError: 'Server' object has no attribute 'list_tools'",
            {"command": "uv"},
            "sdk-mismatch",
            "--with 'mcp<2'",
        ),
        (f"{CRASH}cannot import name 'McpError' from 'mcp'", {}, "sdk-mismatch", "'mcp<2'"),
        (f"{CRASH}'Tool' object has no attribute 'inputSchema'", {}, "sdk-mismatch", "'mcp<2'"),
        (f"{CRASH}No module named 'mcp.server.mcpserver'", {"command": "uvx"}, "sdk-mismatch", "'mcp>=2'"),
        (f"{CRASH}cannot import name 'MCPServer' from 'mcp.server'", {}, "sdk-mismatch", "'mcp>=2'"),
        *(
            (f"{CRASH}{said}", {}, "missing-variable", '"env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}')
            for said in (
                "GITHUB_TOKEN is required",
                "Error: GITHUB_TOKEN environment variable is not set",
                "fatal: environment variable GITHUB_TOKEN not found",
                "KeyError: 'GITHUB_TOKEN'",
                "Please set the GITHUB_TOKEN environment variable",
                "Missing required environment variable: GITHUB_TOKEN",
                "Missing GITHUB_TOKEN",
                "ValueError: GITHUB_TOKEN must be set",
                "GITHUB_TOKEN undefined",
                "no value for `GITHUB_TOKEN`",
                "Usage: github-mcp\nGITHUB_TOKEN is missing",
                "2026-11-16 ERROR Environment variable 'GITHUB_TOKEN' is missing",
                "error: environment variable not found: GITHUB_TOKEN",
                "No token: it was not provided. Set GITHUB_TOKEN.",
            )
        ),
        *(
            (f"{CRASH}{said}", {}, "missing-variable", "export A_TOKEN=…; export B_ID=…; export C_ID=…")
            for said in (
                "Please set A_TOKEN, B_ID and C_ID environment variables",
                "Missing required environment variables: A_TOKEN, B_ID, C_ID",
                "A_TOKEN, B_ID, and C_ID must be set",
                "`A_TOKEN`, `B_ID` & `C_ID` are required",
            )
        ),
        (
            "the server exited with code 2\nits last lines on stderr:\nError: Missing option '--db'.",
            {"command": "x"},
            "usage",
            "correct `args`",
        ),
        (
            f"{CRASH}A_KEY and more\nA_KEY is not set\nB_KEY is not set",
            {},
            "missing-variable",
            "export B_KEY=…",
        ),
        (
            f"{CRASH}A_KEY is required",
            {"command": "x", "env": {"A_KEY": "1"}},
            "missing-variable",
            "check the value",
        ),
        (
            f"{CRASH}1 validation error for Settings\napi_key\n  Field required [type=missing]",
            {},
            "missing-variable",
            '"env": {"API_KEY": "${API_KEY}"}',
        ),
        (
            f"{CRASH}Failed to fetch: `https://pypi.org/simple/x/`\n invalid peer certificate: UnknownIssuer",
            {"command": "uvx", "args": ["x"]},
            "tls",
            '"inherit_env": ["SSL_CERT_FILE"',
        ),
        (
            f"{CRASH}npm error code SELF_SIGNED_CERT_IN_CHAIN",
            {"command": "npx", "args": ["-y", "x"]},
            "tls",
            '"inherit_env": ["NODE_EXTRA_CA_CERTS"]',
        ),
        (
            "no answer within 30 s\nits last lines on stderr:\nssl.SSLCertVerificationError: "
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
            {"command": "python"},
            "tls",
            "REQUESTS_CA_BUNDLE",
        ),
        (
            f"{CRASH}npm error network request to https://registry.npmjs.org/x failed, reason: ENOTFOUND",
            {"command": "npx", "args": ["x"]},
            "fetch",
            '"HTTPS_PROXY"',
        ),
        (
            "the server exited with code 2\nits last lines on stderr:\nusage: x [-h] DIR\n"
            "x: error: the following arguments are required: DIR",
            {"command": "/opt/x"},
            "usage",
            "correct `args`",
        ),
        (
            "the server exited with code 1\nits last lines on stderr:\nUsage: mcp-server-filesystem <dir>",
            {"command": "npx", "args": ["-y", "@scope/fs"]},
            "usage",
            "`npx @scope/fs --help`",
        ),
        (
            "the server exited with code 2\non stdout, where only messages belong, it wrote:\nUsage: x DIR",
            {},
            "usage",
            "correct `args`",
        ),
        (
            f"{CRASH}ModuleNotFoundError: No module named 'yaml.x'",
            {"command": "python3"},
            "missing-module",
            "python3 -m pip install yaml",
        ),
        (f"{CRASH}Error: Cannot find module 'zod'", {"command": "node"}, "missing-module", "npm install zod"),
        (f"{CRASH}npm error code E404", {"command": "npx"}, "crash", "no such package"),
        (f"{CRASH}Segmentation fault", {}, "crash", "--verbose"),
        ("the server was ended by signal 9", {}, "crash", "--verbose"),
        ("no answer within 30 s; raise `connect_timeout`", {}, "no-answer", "connect_timeout"),
        (
            "no answer within 30 s\non stdout, where only messages belong, it wrote:\nHi",
            {},
            "noise",
            "banner",
        ),
        ("it did not list its tools within 30 s; raise `list_timeout`", {}, "no-answer", "list_timeout"),
        ("h:1 cannot be reached: Connect call failed ('127.0.0.1', 1)", URL, "refused", "start the server"),
        (
            "nosuch.invalid:80 cannot be reached: Name or service not known",
            URL,
            "unknown-host",
            "no such host",
        ),
        (
            "h:443 cannot be reached: [SSL: CERTIFICATE_VERIFY_FAILED] certificate",
            URL,
            "tls",
            "SSL_CERT_FILE",
        ),
        ("h:443 cannot be reached: [SSL: WRONG_VERSION_NUMBER] wrong version", URL, "no-tls", "http://"),
        ("HTTP 404: nope", URL, "http-status", "path"),
        ("HTTP 403", URL, "http-status", "right"),
        ("HTTP 500: oh", URL, "http-status", "its own log"),
        ("the response is of type 'text/html', not JSON", URL, "no-mcp", "`url`"),
        ("no common protocol version: the server speaks 2030", URL, "era", "Upgrade"),
        ("an error of unknown kind", URL, "unknown", "--verbose"),
    ],
)
def test_a_failed_server_has_a_cause_and_a_next_step(
    error: str, entry: dict[str, Any], cause: str, step: str
) -> None:
    found, following = reported(error, **entry)
    assert found == cause
    assert step in following


def test_a_server_that_wants_a_login_comes_with_advice() -> None:
    cause, step = reported("it requires a login (HTTP 401)", state="needs-auth", **URL)
    assert cause == "login"
    assert '"Authorization": "Bearer ${GIT_HUB_TOKEN}"' in step
    assert "export GIT_HUB_TOKEN=…" in step


def test_a_server_that_is_still_starting_wants_time() -> None:
    assert reported(None, state="pending") == (
        "no-answer",
        "It is still starting: allow more time with `--timeout 60`.",
    )


@pytest.mark.parametrize("state", ["connected", "disabled"])
def test_a_server_that_is_there_or_not_wanted_has_no_diagnosis(state: State) -> None:
    server = ServerConfig(name="a", command="b")
    assert diagnose(server, ServerStatus(name="a", state=state, transport="stdio")) is None


@given(st.text())
def test_whatever_a_server_says_there_is_a_next_step(words: str) -> None:
    assert all(reported(f"{CRASH}{words}"))


@pytest.mark.parametrize(
    ("command", "args", "package"),
    [
        ("npx", ["-y", "thing"], "thing"),
        ("npx", ["-y", "@scope/thing"], "@scope/thing"),
        ("npx", ["-y", "@scope/thing@latest"], "@scope/thing@latest"),
        ("npx", ["-y", "@scope/thing@1.2.3", "--flag"], None),
        ("npx.cmd", ["--package", "thing", "run"], "thing"),
        ("/usr/bin/uvx", ["mcp-server-time"], "mcp-server-time"),
        ("uvx", ["--with", "mcp<2", "mcp-server-time"], "mcp-server-time"),
        ("uvx", ["--from", "mcp-time==1.0", "run"], None),
        ("uvx", ["mcp-server-time@1.0"], None),
        ("uvx", ["--from", "git+https://example.org/x", "x"], None),
        ("uvx", ["./here"], None),
        ("pipx", ["run", "thing"], "thing"),
        ("python", ["-m", "thing"], None),
        ("npx", [], None),
    ],
)
def test_a_package_that_is_fetched_without_a_version_is_named(
    command: str, args: list[str], package: str | None
) -> None:
    assert unpinned_package(ServerConfig(name="a", command=command, args=args)) == package
