"""The files in `deploy/`: they are valid, and name only settings, metrics and paths that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from mooring import Host, HostConfig, ServerConfig, __version__
from mooring.cli.options import split_options
from mooring.config import load
from mooring.config.operation import MetricsSettings
from mooring.config.sections import GatewaySettings
from mooring.gateway.access import RequestRecord
from mooring.gateway.metrics import Metrics, gateway_metrics
from mooring.gateway.serve import Service

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROMETHEUS = {"up", "time"}


class _Profile:
    name = ""


class _Principal:
    name = "token:ana"


class _Client:
    principal, profile, id, era, has_session = _Principal(), _Profile(), "0" * 32, "legacy", True


def record(**values: Any) -> RequestRecord:
    made = RequestRecord(_Client(), None)  # type: ignore[arg-type]
    for name, value in {
        "method": "tools/call",
        "outcome": "ok",
        "server": "s",
        "tool": "t",
        **values,
    }.items():
        setattr(made, name, value)
    return made


async def exposition() -> str:
    """What `/metrics` says with every metric in it."""
    config = HostConfig(servers=(ServerConfig(name="lazy", command="none", start="lazy"),))
    async with Host(config, lock=False) as host:
        service = Service(host, "127.0.0.1", "http://127.0.0.1")
        service.gateway.certificate_expires = 4e9
        service.gateway.metrics = metrics = Metrics(MetricsSettings(principals=True))
        metrics.answered(record())
        metrics.answered(record(outcome="error", error="tool_error"))
        metrics.refused(401)
        text = metrics.text(gateway_metrics(service.gateway, 3))
        await service.stop()
        return text


@pytest.mark.anyio
async def test_the_dashboard_and_the_alerts_use_metrics_and_labels_that_exist() -> None:
    text = await exposition()
    known = {name: set[str]() for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)}
    for name, labels in re.findall(r"^(\w+?)(?:_bucket|_sum|_count)?\{(.*)\} ", text, re.MULTILINE):
        known.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
    used = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used += [rule["expr"] for rule in rules]
    assert len(used) > 25
    seen: set[str] = set()
    for expression in used:
        for name in re.findall(r"\bmooring_\w+", expression):
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert family in known, f"{name} does not exist: {expression}"
            seen.add(family)
            for label in re.findall(r"by \(([\w, ]+)\)", expression):
                allowed = known[family] | {"instance", "le"}
                assert set(label.replace(" ", "").split(",")) <= allowed, expression
    assert seen >= known.keys() - {
        "mooring_build_info",
        "mooring_gateway_request_seconds",
        "mooring_server_tools",
    }
    assert dashboard["uid"] == "mooring-gateway"
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for rule in rules:
        assert {"summary", "description"} <= rule["annotations"].keys()


def run(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, input=given, capture_output=True, text=True, timeout=30, check=False)


PROMTOOL = shutil.which("promtool")


@pytest.mark.anyio
@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
async def test_promtool_accepts_the_rules_and_the_metrics() -> None:
    assert PROMTOOL is not None
    rules = run(PROMTOOL, "check", "rules", str(DEPLOY / "alerts.yaml"))
    assert rules.returncode == 0, rules.stdout + rules.stderr
    checked = run(PROMTOOL, "check", "metrics", given=await exposition())
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_series_are_limited_and_the_rest_counts_as_other() -> None:
    metrics = Metrics(MetricsSettings(max_tools=3, principals=True, max_principals=2))
    for n in range(50):
        metrics.answered(
            record(server=f"s{n % 2}", tool=f'we"ird\n{n}', principal=f"token:{n}", seconds=0.004)
        )
    text = metrics.text()
    tools = set(re.findall(r'mooring_tool_calls_total\{server="(\w+)",tool="(.*?)",outcome', text))
    assert len([tool for _, tool in tools if tool != "other"]) == 3
    assert {server for server, tool in tools if tool == "other"} == {"s0", "s1"}
    calls = re.findall(r"^mooring_tool_calls_total\{.*\} (\d+)$", text, re.MULTILINE)
    assert sum(map(int, calls)) == 50
    assert 'mooring_principal_requests_total{principal="other",outcome="ok"} 48' in text
    assert r'tool="we\"ird\n0"' in text
    assert 'mooring_tool_call_seconds_bucket{server="s0",tool="other",le="0.005"} 23' in text
    plain = Metrics(MetricsSettings())
    plain.answered(record())
    assert "token:ana" not in plain.text(), "principals are opt-in"


# --- systemd, containers ----------------------------------------------------------------------------------


def command_of(words: list[str]) -> None:
    """Check that a command line is one of ours."""
    from mooring.cli.app import parser_of

    _, rest = split_options(words)
    parser_of(rest[0]).parse_strictly(rest[1:])


def test_the_unit_starts_at_boot_reloads_and_is_hardened() -> None:
    text = (DEPLOY / "mooring.service").read_text()
    assert re.search(r"^\[Install\]\nWantedBy=multi-user.target$", text, re.MULTILINE)
    for setting in (
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "DynamicUser=yes",
        "CapabilityBoundingSet=",
    ):
        assert f"\n{setting}\n" in text
    start = re.search(r"^ExecStart=(\S+) (.*)$", text, re.MULTILINE)
    assert start is not None
    command_of(start[2].split())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "mooring"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "mooring.service"
    unit.write_text(
        (DEPLOY / "mooring.service").read_text().replace("/opt/mooring/bin/mooring", str(program))
    )
    done = run("systemd-analyze", "verify", "--man=no", str(unit))
    said = [line for line in done.stderr.splitlines() if "mooring.service" in line]
    assert (done.returncode, said) == (0, []), done.stderr


def test_the_container_runs_as_another_user_and_starts_our_command() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    stages = re.split(r"^FROM .* AS (\w+)$", text, flags=re.MULTILINE)
    names = stages[1::2]
    assert names == ["build", "base", "full", "slim"]
    for name, body in zip(names, stages[2::2], strict=True):
        users = re.findall(r"^USER (\S+)", body, re.MULTILINE)
        assert users[-1:] in ([], ["10001:10001"]), name
    command = re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)
    assert command is not None
    command_of(json.loads(command[1]))
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["gateway"]
    assert compose["build"]["target"] in names
    assert compose["image"].endswith(f":{__version__}")
    assert (compose["read_only"], compose["cap_drop"]) == (True, ["ALL"])
    assert re.search(r"pip install .*\[.*\bpolicy\b", text), "a configuration with rules needs the extra"


def test_every_deployment_leaves_the_gateway_the_time_that_it_takes_to_stop() -> None:
    """`drain`, the longest `shutdown_grace` and 10 s, and the pause before that in Kubernetes."""
    needed = GatewaySettings().drain + ServerConfig(name="s", command="x").shutdown_grace + 10
    unit = re.search(r"^TimeoutStopSec=(\d+)$", (DEPLOY / "mooring.service").read_text(), re.MULTILINE)
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["gateway"]
    values = yaml.safe_load((DEPLOY / "helm" / "mooring" / "values.yaml").read_text())
    assert unit is not None
    assert int(unit[1]) > needed
    assert int(compose["stop_grace_period"].removesuffix("s")) > needed
    assert values["gracePeriod"] > needed + 5


@pytest.mark.parametrize("name", ["compose.yaml", "mooring.service"])
def test_the_first_token_is_created_before_the_gateway_runs(name: str) -> None:
    """Without a token it does not listen on other addresses: nothing could be executed in its container."""
    text = (DEPLOY / name).read_text().replace("\\\n#", "")
    words = re.search(r"(--config \S+\s+token create ana)", text)
    assert words is not None
    command_of(words[1].split())
    assert "exec gateway" not in text
    assert " ".join(words[1].split()) in " ".join((ROOT / "docs" / "deploy.md").read_text().split())


# --- Helm -------------------------------------------------------------------------------------------------


def lookup(path: str, context: dict[str, Any]) -> Any:
    value: Any = context
    for key in path.strip(".").split("."):
        value = value[key]
    return value


def holds(condition: str, context: dict[str, Any]) -> bool:
    """Whether the condition of an `if` is true."""
    larger = re.fullmatch(r"gt \(int (\S+)\) (\d+)", condition)
    return lookup(larger[1], context) > int(larger[2]) if larger else bool(lookup(condition, context))


def piped(text: str, context: dict[str, Any]) -> str:
    """The value of an expression, with the functions that our templates use."""
    first, *more = [part.strip() for part in text.split("|")]
    value: Any
    if first.startswith("toYaml "):
        value = yaml.safe_dump(lookup(first.removeprefix("toYaml "), context)).rstrip()
    else:
        value = lookup(first, context)
    for call in more:
        name, *given = call.split()
        if name == "nindent":
            value = "\n" + "\n".join(" " * int(given[0]) + line for line in value.splitlines())
        elif name == "quote":
            value = json.dumps(str(value))
        elif name == "sha256sum":
            value = sha256(value.encode()).hexdigest()
        else:
            raise AssertionError(f"the function {name!r} is not known to this test")
    return str(value)


def rendered(template: str, context: dict[str, Any]) -> list[dict[str, Any]]:
    """The documents of a template: the part of Go templates that ours use."""
    out: list[str] = []
    shown = [True]
    for text, action in re.findall(r"(.*?)(?:\{\{(.*?)\}\}|\Z)", template, re.DOTALL):
        trimmed = action.startswith("-")
        if shown[-1]:
            out.append(text.rstrip(" \n\t") if trimmed else text)
        word = action.strip("- ")
        if word.startswith("if "):
            shown.append(shown[-1] and holds(word.removeprefix("if "), context))
        elif word == "else":
            shown[-1] = not shown[-1] and shown[-2]
        elif word == "end":
            shown.pop()
        elif word and shown[-1]:
            out.append(piped(word, context))
    return [one for one in yaml.safe_load_all("".join(out)) if one]


@pytest.mark.parametrize("more", [False, True])
def test_the_chart_renders_to_a_configuration_that_we_accept(more: bool, tmp_path: Path) -> None:
    chart = DEPLOY / "helm" / "mooring"
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    values = yaml.safe_load((chart / "values.yaml").read_text())
    assert about["version"] == about["appVersion"] == values["image"]["tag"] == __version__
    values["ingress"]["enabled"] = values["persistence"]["enabled"] = values["scrape"] = more
    context = {"Values": values, "Release": {"Name": "mcp"}, "Chart": {"AppVersion": about["appVersion"]}}
    documents = rendered((chart / "templates" / "gateway.yaml").read_text(), context)
    kinds = {one["kind"]: one for one in documents}
    assert set(kinds) == {"ConfigMap", "Deployment", "Service"} | (
        {"PersistentVolumeClaim", "Ingress"} if more else set()
    )
    file = tmp_path / "mooring.yaml"
    file.write_text(kinds["ConfigMap"]["data"]["mooring.yaml"])
    config = load([file])
    assert config.warnings == ()
    assert config.gateway.access_log is not None
    pod = kinds["Deployment"]["spec"]["template"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["terminationGracePeriodSeconds"] > config.gateway.drain
    # A second pod could not attach the volume of the first one.
    assert kinds["Deployment"]["spec"]["strategy"]["type"] == ("Recreate" if more else "RollingUpdate")
    [container] = pod["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "claimName" in str(pod["spec"]["volumes"]) or not more
    for replicas in (1, 2) if more else ():
        values["replicas"] = replicas
        [ingress] = [
            one
            for one in rendered((chart / "templates" / "gateway.yaml").read_text(), context)
            if one["kind"] == "Ingress"
        ]
        hashed = [text for name, text in ingress["metadata"]["annotations"].items() if "hash" in name]
        assert hashed == (["$remote_addr"] if replicas > 1 else [])
    helm = shutil.which("helm")
    if helm is not None:
        subprocess.run([helm, "lint", str(chart)], check=True, capture_output=True)


def test_the_examples_for_proxies_name_settings_that_we_accept(tmp_path: Path) -> None:
    for name in ("nginx.conf", "Caddyfile", "traefik.yaml"):
        lines = (DEPLOY / name).read_text().splitlines()
        block = [line.lstrip("# ").rstrip() for line in lines if re.match(r"#   ", line)]
        text = "\n".join(("  " if not line.startswith("gateway") else "") + line for line in block)
        file = tmp_path / "mooring.yaml"
        file.write_text(text + "\nmcpServers: {}\n")
        config = load([file])
        assert config.warnings == (), name
        assert config.gateway.forwarded is not None
        assert config.gateway.url is not None
    yaml.safe_load((DEPLOY / "traefik.yaml").read_text())
