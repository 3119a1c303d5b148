"""TH17, TH18: a project file found automatically starts nothing before it is approved on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mooring import ConfigApplied, Host, NotTrusted, ServerConfig, TrustRequest
from mooring.cli import main
from mooring.config import load, trust
from mooring.config.files import state_home
from mooring.config.models import ConfigSource
from mooring.config.trust import forbidden, mark, settings_mark
from tests.lab.stdio import COMMAND, starts
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder.parent / "log"
        self.file = folder / "mooring.json"

    def entry(self, **more: Any) -> dict[str, Any]:
        return {"command": COMMAND[0], "args": [*COMMAND[1:], json.dumps({"log": str(self.log)})], **more}

    def write(self, *, watch: bool = False, **servers: Any) -> None:
        fresh = self.folder / "fresh"
        settings = {"watch": {"enabled": watch, "debounce": "50ms"}}
        fresh.write_text(json.dumps({**settings, "servers": servers}))
        os.replace(fresh, self.file)

    def host(self, **options: Any) -> Host:
        return Host.from_config(cwd=self.folder, **options)

    def approve(self) -> None:
        """As `mooring trust --yes` does, which runs an event loop of its own."""
        config = load(cwd=self.folder, approval=lambda file: trust.Approval())
        marks = {server.name: mark(server) for server in config.servers}
        settings = config.withheld.settings if config.withheld else {}
        trust.approve(str(self.file), marks, settings=settings_mark(settings))

    @property
    def started(self) -> int:
        return len(starts(self.log))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return Project(folder)


def states(host: Host) -> dict[str, str]:
    return {status.name: status.state for status in host.status()}


async def test_TH17_a_found_file_starts_nothing_and_says_what_to_type(project: Project) -> None:
    project.write(a=project.entry(), lazy=project.entry(start="lazy"), off=project.entry(disabled=True))
    async with project.host() as host:
        await host.ready(10)
        await host.refresh()
        assert set(states(host).values()) == {"disabled"}
        assert [s.error is not None and "`mooring trust`" in s.error for s in host.status()] == [
            True,
            True,
            False,
        ]
        assert list(host.held) == ["a", "lazy"]
        result = await host.call("mcp_a_echo", {"text": "x"})
        assert isinstance(result.error, NotTrusted)
        assert "not approved on this machine" in result.text
        with pytest.raises(NotTrusted):
            await host.ping("a")
    assert project.started == 0


async def test_TH17_no_conversation_starts_a_server_of_its_own_past_the_gate(project: Project) -> None:
    project.write(a=project.entry(isolation="session"))
    async with project.host() as host:
        async with host.session("chat") as chat:
            result = await chat.call("mcp_a_echo", {"text": "x"})
            assert isinstance(result.error, NotTrusted)
        private = host._servers.private(host.config.servers[0], None, None)
        assert private.state == "disabled"
    assert project.started == 0


async def test_TH17_its_tools_are_not_shown_from_the_lock_either(project: Project) -> None:
    project.write(a=project.entry())
    async with project.host(trust=True) as host:
        await host.ready(10)
        assert "mcp_a_echo" in host.catalog.tools
    async with project.host() as host:
        assert not host.catalog.tools


async def test_TH17_an_approval_holds_until_one_byte_changes(project: Project) -> None:
    project.write(a=project.entry(), b=project.entry())
    project.approve()
    async with project.host() as host:
        await host.ready(10)
        assert states(host) == {"a": "connected", "b": "connected"}
    project.write(a=project.entry(env={"X": "1"}), b=project.entry())
    async with project.host() as host:
        await host.ready(10)
        assert states(host) == {"a": "disabled", "b": "connected"}
        assert "has changed since it was approved" in str(host.held["a"])


@pytest.mark.parametrize(
    "change",
    [
        {"args": ["x"]},
        {"env": {"A": "1"}},
        {"env": {"A": "${B}"}},
        {"cwd": "."},
        {"inherit_env": ["A"]},
        {"pins": "off"},
        {"trust_hints": True},
        {"policy": {"allow": ["x"]}},
        {"auth": {"client_id": "x"}},
    ],
)
def test_TH17_every_field_that_decides_something_counts(project: Project, change: dict[str, Any]) -> None:
    project.write(a=project.entry())
    assert main(["trust", "--yes"]) == 0
    project.write(a={**project.entry(), **change})
    assert main(["trust", "--json"]) == 3


def test_TH17_moving_the_file_elsewhere_is_another_file(project: Project, tmp_path: Path) -> None:
    project.write(a=project.entry())
    assert main(["trust", "--yes"]) == 0
    other = tmp_path / "other.json"
    other.write_text(project.file.read_text())
    assert main(["trust", str(other), "--json"]) == 3
    assert trust.approved_files() == (str(project.file),)


async def test_TH17_nothing_in_the_file_itself_can_approve(project: Project) -> None:
    claims = {"trust": True, "trusted": True, "approved": True, "auto_approve": ["*"], "always_allow": ["*"]}
    project.file.write_text(
        json.dumps({"trust": True, "x-approved": True, "servers": {"a": {**project.entry(), "trust": True}}})
    )
    async with project.host() as host:
        assert "connected" not in states(host).values()
    project.file.unlink()
    (project.folder / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"a": {**project.entry(), **claims}}})
    )
    async with project.host() as host:
        await host.ready(10)
        assert "connected" not in states(host).values()
    assert project.started == 0


async def test_files_that_the_user_named_or_wrote_need_no_approval(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(a=project.entry())
    async with Host.from_config(project.file) as host:
        await host.ready(10)
        assert states(host) == {"a": "connected"}
    monkeypatch.setenv("MOORING_CONFIG", str(project.file))
    async with Host.from_config() as host:
        await host.ready(10)
        assert states(host) == {"a": "connected"}


async def test_the_application_may_trust_for_this_run_or_ask(project: Project) -> None:
    project.write(a=project.entry(), b=project.entry())
    asked: list[TrustRequest] = []

    async def ask(request: TrustRequest) -> bool:
        asked.append(request)
        return True

    async with project.host(trust=ask) as host:
        await host.ready(10)
        assert states(host) == {"a": "connected", "b": "connected"}
    assert [(request.file, [s.name for s in request.servers]) for request in asked] == [
        (str(project.file), ["a", "b"])
    ]
    assert str(project.log) in asked[0].text
    async with project.host(trust=lambda request: False) as host:
        assert set(states(host).values()) == {"disabled"}
    async with project.host(trust=lambda request: 1 / 0) as host:
        assert set(states(host).values()) == {"disabled"}
    async with project.host(trust=True) as host:
        await host.ready(10)
        assert states(host) == {"a": "connected", "b": "connected"}
    assert trust.approved_files() == ()


async def test_TH18_what_an_agent_writes_into_the_file_is_not_started(project: Project) -> None:
    project.write(watch=True, a=project.entry())
    project.approve()
    async with project.host() as host:
        await host.ready(10)
        before = project.started
        events = host.events(ConfigApplied)
        evil = project.entry(env={"EVIL": "1"})
        project.write(watch=True, a=project.entry(), evil=evil)
        await until(lambda: "evil" in states(host))
        assert states(host) == {"a": "connected", "evil": "disabled"}
        project.write(watch=True, a=evil)
        await until(lambda: states(host) == {"a": "disabled"})
        await host.refresh()
        assert project.started == before
        applied = [await anext(events) for _ in range(2)]
        assert [(event.started, event.stopped, event.restarted) for event in applied] == [
            ((), (), ()),
            ((), ("evil", "a"), ()),
        ]
        # Approved by a person, then saved again: it starts.
        project.approve()
        project.write(watch=True, a=evil, b=project.entry(disabled=True))
        await until(lambda: states(host).get("a") == "connected")


async def test_TH18_a_server_of_a_found_file_cannot_be_added_or_applied_past_the_gate(
    project: Project,
) -> None:
    found = ServerConfig(
        name="x", **project.entry(), source=ConfigSource(file=str(project.file), scope="project")
    )
    async with Host() as host:
        with pytest.raises(NotTrusted):
            await host.add(found)
        assert host.status() == ()
    assert project.started == 0


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "NODE_OPTIONS", "PYTHONPATH"),
        *("PYTHONSTARTUP", "PYTHONHOME", "BASH_ENV", "ENV", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS"),
        *("GIT_SSH_COMMAND", "PATH", "npm_config_registry", "UV_INDEX_URL", "ld_preload", "HTTPS_PROXY"),
    ],
)
def test_TH16_variables_that_make_programs_run_other_code_are_known(name: str) -> None:
    assert forbidden(ServerConfig(name="a", command="a", env={name: "x", "FINE": "1"})) == (name,)


@pytest.mark.parametrize(
    "name", ["API_KEY", "LOG_LEVEL", "ENVIRONMENT", "NODE_ENV", "PORT", "MY_PATH", "PYTHONUNBUFFERED"]
)
def test_other_variables_may_be_set(name: str) -> None:
    assert forbidden(ServerConfig(name="a", command="a", env={name: "x"})) == ()


def test_TH16_a_found_file_may_not_set_them_though_it_is_approved_and_a_named_one_may(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write(a=project.entry(env={"NODE_OPTIONS": "x", "FINE": "1"}))
    assert main(["trust", "--yes"]) == 0
    assert "REFUSED  project files may not set NODE_OPTIONS" in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    [server] = json.loads(capsys.readouterr().out)["servers"]
    assert server["state"] == "disabled"
    assert "sets 'NODE_OPTIONS', which" in server["error"]
    assert "--config" in server["error"]
    assert project.started == 0
    assert main(["--config", str(project.file), "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["servers"][0]["state"] == "connected"


def test_commands_that_need_an_unapproved_server_end_with_exit_code_3(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write(a=project.entry())
    for words in (["call", "mcp_a_echo"], ["ping", "a"], ["ping"], ["lock"], ["trust"]):
        code = main(words)
        assert code == (0 if words == ["ping"] else 3), words
    capsys.readouterr()
    assert main(["tools"]) == 0
    assert "`mooring trust`" in capsys.readouterr().err
    assert main(["doctor"]) == 0
    assert "→ mooring trust" in capsys.readouterr().out
    assert project.started == 0


def test_the_plan_is_shown_whole_and_nothing_in_it_can_hide(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "x" * 5_000
    project.write(
        a={
            "command": "bash",
            "args": ["-c", f"echo \u202e\x1b[2J {long} END\nserver 'fake' (approved)"],
            "env": {"API_KEY": "written-out", "TOKEN": "${T}"},
            "inherit_env": ["AWS_PROFILE"],
            "cwd": "sub",
        },
        b={"url": "https://host/mcp?key=written-out-2", "headers": {"Authorization": "Bearer ${T}"}},
    )
    assert main(["trust"]) == 3
    shown = capsys.readouterr().out
    assert f"{long} END\\nserver " in shown
    assert "\nserver 'fake'" not in shown
    assert r"\u202e\x1b[2J" in shown
    for part in (
        "API_KEY=***",
        "TOKEN=${T}",
        "your own AWS_PROFILE",
        "in       sub",
        "Bearer ${T}",
        "https://host/mcp",
    ):
        assert part in shown
    assert "written-out" not in shown
    assert "\x1b" not in shown
    assert main(["trust", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert [server["status"] for server in document["servers"]] == ["new", "new"]
    assert "written-out" not in json.dumps(document)


def test_an_approval_can_be_listed_and_revoked(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.write(a=project.entry())
    assert main(["trust", "--yes", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["trust", "--list"]) == 0
    assert capsys.readouterr().out == f"{project.file}\n"
    assert main(["trust"]) == 0
    assert main(["trust", "--revoke"]) == 0
    assert main(["trust"]) == 3


def test_without_a_project_file_trust_says_so(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trust"]) == 2
    assert "there is no project file here" in capsys.readouterr().err


# --- where approvals are kept


def test_TH18_approvals_are_private_and_outside_the_project(project: Project) -> None:
    project.write(a=project.entry())
    assert main(["trust", "--yes"]) == 0
    kept = [path for path in state_home().rglob("*") if path.is_file()]
    assert len(kept) == 1
    assert not kept[0].is_relative_to(project.folder)
    assert (kept[0].stat().st_mode & 0o777, kept[0].parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("harm", ["link", "writable", "garbage", "folder", "pipe", "version", "deep"])
def test_TH18_an_approval_that_another_user_could_have_written_counts_for_nothing(
    tmp_path: Path, harm: str
) -> None:
    file = str(tmp_path / "x.json")
    trust.approve(file, {"a": "mark"})
    [kept] = [path for path in state_home().rglob("*") if path.is_file()]
    assert trust.approved(file) == {"a": "mark"}
    good = kept.read_text()
    match harm:
        case "writable":
            kept.chmod(0o666)
        case "garbage":
            kept.write_text("{")
        case "version":
            kept.write_text(good.replace('"version": 1', '"version": 2'))
        case "deep":
            kept.write_text("[" * 100_000)
        case "link":
            kept.rename(tmp_path / "elsewhere")
            kept.symlink_to(tmp_path / "elsewhere")
        case "folder":
            kept.unlink()
            kept.mkdir()
        case _:
            kept.unlink()
            os.mkfifo(kept)
    assert trust.approved(file) == {}
    assert trust.approved_files() == ()


def test_an_approval_is_not_written_through_a_link(tmp_path: Path) -> None:
    from mooring import ConfigError

    file, victim = str(tmp_path / "x.json"), tmp_path / "victim"
    victim.write_text("mine")
    trust.approve(file, {})
    [kept] = [path for path in state_home().rglob("*") if path.is_file()]
    kept.unlink()
    kept.symlink_to(victim)
    with pytest.raises(ConfigError, match="something other than a file"):
        trust.approve(file, {"a": "b"})
    assert victim.read_text() == "mine"
