"""`mooring completion`: the proposals for the shell."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def offered(ran, mixed_config):
    def ask(*typed: str) -> list[str]:
        return ran("completion", "--words", "--", "--config", mixed_config, *typed).stdout.split()

    return ask


def test_a_command_is_completed(offered) -> None:
    assert offered("do") == ["doctor"]
    assert {"list", "tools", "call"} <= set(offered(""))


def test_options_of_the_command_and_of_every_command_are_offered(offered) -> None:
    assert "--check-only" in offered("lock", "--")
    assert "--json" in offered("lock", "--")
    assert offered("tools", "--sty") == ["--style"]


def test_servers_come_from_the_configuration(offered) -> None:
    assert offered("ping", "") == ["broken", "clock", "notes", "spare"]
    assert offered("tools", "--server", "n") == ["notes"]


def test_choices_of_an_option_are_offered(offered) -> None:
    assert "double" in offered("tools", "--style", "")


def test_tools_and_their_arguments_come_from_an_earlier_run_without_starting_anything(
    ran, config, lab, offered
) -> None:
    file = config({"lab": lab.entry})
    assert ran("tools", "--config", file).returncode == 0
    starts = lab.starts

    def ask(*typed: str) -> list[str]:
        return ran("completion", "--words", "--", "--config", file, *typed).stdout.split()

    assert ask("call", "mcp_lab_r") == ["mcp_lab_read"]
    assert ask("call", "mcp_lab_read", "") == ["z=", "a="]
    assert ask("call", "mcp_lab_read", "z=1", "") == ["a="]
    assert ask("call", "mcp_lab_nothing", "") == []
    assert lab.starts == starts


def test_a_configuration_that_cannot_be_read_offers_nothing_and_says_nothing(ran, tmp_path) -> None:
    bad = tmp_path / "mcp.json"
    bad.write_text("{")
    done = ran("completion", "--words", "--", "--config", str(bad), "ping", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_understands_its_script(ran, shell: str) -> None:
    script = ran("completion", shell).stdout
    assert "mooring completion --words --" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


@pytest.fixture
def bash(ran, environment, tmp_path):
    """Completes a line as bash does: it calls the function, then replaces what follows the last = or :."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    env = environment | {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"}

    def complete(line: str) -> list[str]:
        probe = f"""
            mooring() {{ python -m mooring "$@"; }}
            compopt() {{ :; }}
            {ran("completion", "bash").stdout}
            COMP_LINE="$0" COMP_POINT=${{#0}}
            _mooring
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        done = subprocess.run(
            ["bash", "-c", probe, line], env=env, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.stderr == ""
        return done.stdout.split()

    return complete


def test_bash_completes_a_command(bash) -> None:
    assert bash("mooring do") == ["doctor"]


def test_bash_completes_values_after_the_characters_at_which_it_splits_words(
    bash, piped, config, lab
) -> None:
    lab.offers(paint="Paint.")
    lab.takes("paint", {"type": "object", "properties": {"colour": {"enum": ["red", "green", "r:1"]}}})
    file = config({"lab": lab.entry})
    assert piped("tools", "--config", file).returncode == 0
    typed = f"mooring --config {file} call mcp_lab_paint "
    assert bash(f"{typed}col") == ["colour="]
    assert bash(f"{typed}colour=") == ["red", "green", "r:1"]
    assert bash(f"{typed}colour=g") == ["green"]
    assert bash(f"{typed}colour=r:") == ["1"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
def test_zsh_completes_at_the_first_call_of_the_file_in_its_fpath(ran, environment, tmp_path) -> None:
    (tmp_path / "_mooring").write_text(ran("completion", "zsh").stdout)
    probe = """
        mooring() { print -l doctor; }
        compadd() { print -- "$@"; }
        fpath=(. $fpath); autoload -U _mooring
        words=(mooring do) CURRENT=2
        _mooring
    """
    done = subprocess.run(
        ["zsh", "-f", "-c", probe], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == ["--", "doctor"]


def test_no_shell_is_an_error_that_names_them(ran) -> None:
    done = ran("completion")
    assert done.returncode == 2
    assert "bash, zsh or fish" in done.stderr


def test_what_a_command_takes_is_offered(offered) -> None:
    assert offered("token", "") == ["create", "list", "rotate", "revoke"]
    assert offered("completion", "f") == ["fish"]
    assert "doctor" in offered("help", "")
    assert "login" in offered("explain", "lo")
    assert "claude-code" in offered("import", "claude")
    assert offered("logs", "n") == ["notes"]


def test_values_that_a_schema_lists_are_offered() -> None:
    from mooring import Tool
    from mooring.cli.completion import _arguments

    listed = {
        "colour": {"enum": ["red", "green"]},
        "loud": {"type": "boolean"},
        "odd": [],
        "text": {"enum": 3},
    }
    tool = Tool(name="t", server="s", remote_name="t", input_schema={"type": "object", "properties": listed})
    assert _arguments(tool, [], "colour=") == ["colour=red", "colour=green"]
    assert _arguments(tool, [], "loud=") == ["loud=true", "loud=false"]
    assert _arguments(tool, [], "odd=") == _arguments(tool, [], "text=") == _arguments(tool, [], "no=") == []
    assert _arguments(tool, ["loud=true"], "") == ["colour=", "odd=", "text="]


def test_more_servers_are_offered_where_a_command_takes_several(offered) -> None:
    assert offered("ping", "notes", "") == ["broken", "clock", "spare"]
    assert offered("logs", "notes", "clock", "s") == ["spare"]
    assert offered("remove", "notes", "") == []


def test_profiles_scopes_and_tokens_are_offered(ran, config) -> None:
    file = config({"notes": "notes"})
    written = json.loads(Path(file).read_text()) | {"gateway": {"profiles": {"reading": {}}}}
    Path(file).write_text(json.dumps(written))
    for name in ("ana", "bob"):
        assert ran("--config", file, "token", "create", name, "--scope", "read").returncode == 0
    assert ran("--config", file, "token", "revoke", "bob").returncode == 0

    def ask(*typed: str) -> list[str]:
        return ran("completion", "--words", "--", "--config", file, "token", *typed).stdout.split()

    assert ask("revoke", "") == ["ana"]
    assert ask("rotate", "a") == ["ana"]
    assert ask("create", "") == []
    assert ask("create", "cy", "--profile", "") == ["reading"]
    assert ask("create", "cy", "--scope", "") == ["admin", "read"]
