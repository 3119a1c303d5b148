"""`mooring login` and `mooring logout`, as a person and as a script use them."""

import asyncio
import json
import signal
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.lab.idp import IdpLab, new_key
from tests.lab.oauth import AuthLab, browse

BROWSER = f"""#!{sys.executable}
import sys, urllib.request
with open({{log!r}}, "a") as log:
    log.write(repr(sys.argv[1:]) + "\\n")
urllib.request.urlopen(sys.argv[1], timeout=10).read()
"""


@pytest.fixture
def browser(tmp_path: Path) -> Path:
    """A program that opens the address it is given, says yes, and notes how it was called."""
    program, log = tmp_path / "browser", tmp_path / "opened"
    program.write_text(BROWSER.format(log=str(log)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


class Run:
    """The program as a process: what it says is read while it runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""

    async def address(self) -> str:
        """The address that it prints for the person to open."""
        assert self.process.stderr is not None
        async with asyncio.timeout(20):
            while "\n\n" not in self.said.partition("http")[2]:
                piece = await self.process.stderr.read(4096)
                assert piece, self.said
                self.said += piece.decode()
        return "http" + self.said.partition("http")[2].partition("\n")[0]

    async def end(self, given: str = "") -> tuple[int, str, str]:
        async with asyncio.timeout(20):
            out, err = await self.process.communicate(given.encode())
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), self.said + err.decode()


@pytest.fixture
def started(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Any]:
    async def start(*words: str, **env: str) -> Run:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "mooring", *words,
            cwd=tmp_path, env={**environment, **env}, stdin=pipe, stdout=pipe, stderr=pipe,
        )  # fmt: skip
        return Run(process)

    return start


Config = Callable[[Mapping[str, Any]], str]


async def test_login_opens_the_browser_and_later_commands_use_the_login(
    started: Any, config: Config, browser: Path, tmp_path: Path
) -> None:
    async with AuthLab() as auth:
        file = config({"web": {"url": auth.lab.url}})
        code, out, err = await (
            await started("login", "web", "--json", "--config", file, BROWSER=str(browser))
        ).end()
        assert code == 0, err
        assert json.loads(out) == {
            "server": "web",
            "status": "logged in",
            "issuer": auth.issuer,
            "scopes": ["mcp"],
            "state": "connected",
            "tools": 2,
        }
        assert auth.issuer.partition("://")[2] in err  # whose page it is
        (opened,) = (tmp_path / "opened").read_text().splitlines()
        assert opened.startswith(f"['{auth.issuer}/authorize?")
        code, out, _ = await (await started("call", "mcp_web_echo", "text=hi", "--config", file)).end()
        assert (code, out) == (0, "hi\n")
        code, out, _ = await (await started("logout", "web", "--json", "--config", file)).end()
        assert json.loads(out) == {"server": "web", "status": "logged out", "revoked": True}
        assert auth.tokens == {}
        code, _, err = await (await started("call", "mcp_web_echo", "--config", file)).end()
        assert code == 3
        assert "mooring login web" in err


async def test_without_a_browser_the_address_is_printed_and_the_answer_pasted(
    started: Any, config: Config
) -> None:
    async with AuthLab() as auth:
        file = config({"web": {"url": auth.lab.url}})
        run = await started("login", "web", "--no-browser", "--config", file)
        _, back = await browse(await run.address(), follow=False)
        code, out, err = await run.end(f"http://127.0.0.1/nonsense\n{back}\n")
        assert code == 0, err
        assert out == ""
        assert "must begin with http://127.0.0.1:" in err
        assert "Logged in to web: 2 tools." in err


async def test_without_a_browser_the_page_on_this_machine_still_serves(started: Any, config: Config) -> None:
    async with AuthLab() as auth:
        file = config({"web": {"url": auth.lab.url}})
        run = await started("login", "web", "--no-browser", "--quiet", "--config", file)
        assert (await browse(await run.address()))[0] == 200
        code, out, _ = await run.end()
        assert (code, out) == (0, "")


async def test_login_and_logout_on_a_terminal(terminal: Any, config: Config, browser: Path) -> None:
    async with AuthLab() as auth:
        words = ("web", "--config", config({"web": {"url": auth.lab.url}}))
        shown = [
            await asyncio.to_thread(terminal, command, *words, BROWSER=str(browser))
            for command in ("login", "logout")
        ]
        page = auth.issuer.partition("://")[2]
        assert [(one.code, one.text.replace(page, "HOST")) for one in shown] == snapshot(
            [
                (
                    0,
                    """\
note: The login page of web is at HOST.
note: Logged in to web: 2 tools.
""",
                ),
                (0, "note: Logged out of web.\n"),
            ]
        )


async def test_login_and_logout_in_a_pipe(started: Any, config: Config, browser: Path) -> None:
    async with AuthLab() as auth:
        words = ("web", "--config", config({"web": {"url": auth.lab.url}}))
        page = auth.issuer.partition("://")[2]
        outcomes = []
        for command in ("login", "logout"):
            code, out, err = await (await started(command, *words, BROWSER=str(browser))).end()
            outcomes.append((code, out, err.replace(page, "HOST")))
        assert outcomes == snapshot(
            [
                (
                    0,
                    "",
                    """\
note: The login page of web is at HOST.
note: Logged in to web: 2 tools.
""",
                ),
                (0, "", "note: Logged out of web.\n"),
            ]
        )


@pytest.mark.parametrize(
    ("switches", "words", "reason"),
    [
        ({"s256": False}, [], "S256"),
        ({"protected": None, "hint": False}, [], "no authorization server"),
        ({}, ["--no-browser", "--timeout", "1"], "within 1 s"),
    ],
)
async def test_a_login_that_does_not_happen_is_exit_code_3_and_one_paragraph(
    switches: dict[str, Any], words: list[str], reason: str, started: Any, config: Config, browser: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    async with AuthLab(**switches) as auth:
        file = config({"web": {"url": auth.lab.url}})
        code, out, err = await (
            await started("login", "web", *words, "--config", file, BROWSER=str(browser))
        ).end()
        assert (code, out) == (3, "")
        assert reason in err
        assert "Traceback" not in err
        assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize("more", [[], ["--json"]])
async def test_ctrl_c_ends_a_login_that_waits_for_the_browser(
    started: Any, config: Config, more: list[str]
) -> None:
    async with AuthLab() as auth:
        file = config({"web": {"url": auth.lab.url}})
        run = await started("login", "web", "--no-browser", *more, "--config", file)
        await run.address()
        run.process.send_signal(signal.SIGINT)
        code, out, err = await run.end()
        assert code == 130
        assert err.endswith("Interrupted. All servers that were started have been stopped.\n")
        assert "Traceback" not in err
        assert (json.loads(out)["error"]["kind"] if more else out) == ("Interrupted" if more else "")


def test_a_server_that_takes_no_login_is_misuse(ran: Any, config: Config) -> None:
    file = config(
        {"notes": "notes", "token": {"url": "http://127.0.0.1:9/", "headers": {"Authorization": "x"}}}
    )
    for command in ("login", "logout"):
        for server, reason in (("notes", "`env`"), ("token", "`headers`"), ("nots", "Did you mean 'notes'")):
            done = ran(command, server, "--config", file)
            assert done.returncode == 2
            assert reason in done.stderr


async def test_doctor_and_list_say_how_to_log_in(started: Any, config: Config) -> None:
    async with AuthLab() as auth:
        file = config({"web": {"url": auth.lab.url}})
        _, out, _ = await (await started("doctor", "--config", file)).end()
        assert "mooring login web" in out
        _, out, _ = await (await started("list", "--json", "--config", file)).end()
        (server,) = json.loads(out)["servers"]
        assert server["state"] == "needs-auth"
        _, out, _ = await (await started("tools", "--json", "--config", file)).end()
        assert [tool["name"] for tool in json.loads(out)] == ["mcp_web_authenticate"]


EXCHANGES: dict[str, tuple[dict[str, Any], int, str]] = {
    "stale": ({"denies": "invalid_grant"}, 1, "sign in there again"),
    "forbidden": ({"denies": "access_denied"}, 1, "Ask the administrator of the identity provider"),
    "stranger": ({"clients": {}}, 1, "the secret or key in `idp`"),
    "elsewhere": ({"claims": {"aud": "https://other.example"}}, 1, "compare `issuer`"),
    "forged": ({"key": new_key()}, 2, "trusts this identity provider"),
}


async def test_doctor_explains_a_refused_exchange_by_step(started: Any, config: Config) -> None:
    async with AsyncExitStack() as stack:
        servers: dict[str, Any] = {}
        for name, (settings, _, _) in EXCHANGES.items():
            idp = await stack.enter_async_context(IdpLab(**settings))
            auth = await stack.enter_async_context(AuthLab())
            idp.trusted_by(auth)
            auth.clients["mooring"] = {"client_secret": "s3cret-as"}
            provider = {"issuer": idp.issuer, "client_id": "host", "client_secret": "s3cret-idp"}
            provider["subject_token"] = idp.id_token("ana")
            own = {"client_id": "mooring", "client_secret": "s3cret-as", "idp": provider}
            servers[name] = {"url": auth.lab.url, "auth": own}
        _, out, _ = await (await started("doctor", "--json", "--config", config(servers))).end()
        found = {one["server"]: one for one in json.loads(out) if one["level"] == "error"}
        for name, (_, step, advice) in EXCHANGES.items():
            assert f"step {step} of 2" in found[name]["finding"]
            assert advice in found[name]["next"]
        assert "s3cret" not in out
