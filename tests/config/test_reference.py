"""The reference of settings and the JSON Schema match the loader."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from mooring.config import load
from mooring.config.formats import DEFAULTS, IGNORED
from mooring.config.models import HostConfig, ServerConfig
from mooring.config.reference import SettingReference, json_schema, references_of

ROOT = Path(__file__).parents[2]
SCHEMA = json_schema()
VALIDATOR = Draft7Validator(SCHEMA)
SERVER = [one for one in references_of(ServerConfig) if one.path.isidentifier() and one.path != "name"]
HOST = [one for one in references_of(HostConfig) if one.path.isidentifier()]
IDS = {"ids": lambda one: one.path}


def complaints(data: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}"[:300] for error in VALIDATOR.iter_errors(data)]


def loaded(folder: Path, data: Any) -> HostConfig:
    file = folder / "mooring.json"
    file.write_text(json.dumps(data))
    return load([file])


def test_the_schema_is_valid_itself() -> None:
    Draft7Validator.check_schema(SCHEMA)


def test_every_setting_has_a_meaning_and_an_example() -> None:
    found = [one for cls in (ServerConfig, HostConfig) for one in references_of(cls)]
    assert len(found) > 100
    assert [one.path for one in found if not one.meaning] == []
    assert [one.path for one in found if one.example is None and one.section is None] == []


def test_every_field_of_the_models_is_in_the_reference() -> None:
    internal = {"source", "servers", "warnings", "project_policy", "withheld"}
    assert {one.path for one in SERVER} == ServerConfig.field_names() - internal - {"name"}
    assert {one.path for one in HOST} == HostConfig.field_names() - internal


def entry_with(one: SettingReference) -> dict[str, Any]:
    base = (
        {"url": "https://example.com/mcp"}
        if one.path in ("headers", "url", "proxy", "transport")
        else {"command": "x"}
    )
    return base | {one.path: one.example}


@pytest.mark.parametrize("one", [one for one in SERVER if one.section is None], **IDS)
def test_the_example_of_a_server_setting_is_accepted_by_the_loader_and_the_schema(
    one: SettingReference, tmp_path: Path
) -> None:
    data = {"servers": {"s": entry_with(one)}}
    assert complaints(data) == []
    config = loaded(tmp_path, data)
    assert config.warnings == ()
    default = ServerConfig.field_defaults().get(one.path)
    assert getattr(config.servers[0], one.path) != default


@pytest.mark.parametrize("one", [one for one in HOST if one.section is None], **IDS)
def test_the_example_of_a_host_setting_is_accepted_by_the_loader_and_the_schema(
    one: SettingReference, tmp_path: Path
) -> None:
    data = {"servers": {"github": {"command": "x"}}, one.path: one.example}
    assert complaints(data) == []
    assert loaded(tmp_path, data).warnings == ()


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_a_default_of_all_servers_may_stand_beside_them(name: str, tmp_path: Path) -> None:
    one = next(one for one in SERVER if one.path == name)
    data = {"servers": {"s": {"command": "x"}}, name: one.example}
    assert complaints(data) == []
    config = loaded(tmp_path, data)
    assert config.warnings == ()
    assert getattr(config.servers[0], name) != ServerConfig.field_defaults()[name]


@pytest.mark.parametrize(
    "wrong",
    [
        {"servers": {"s": {"comand": "x"}}},
        {"servers": {"s": {"command": "x", "isolation": "sesion"}}},
        {"servers": {"s": {"command": "x", "max_queue": "many"}}},
        {"servers": {"s": {"command": "x", "connect_timeout": 601}}},
        {"servers": {"s": {"command": "x", "connect_timeout": "soon"}}},
        {"servers": {"s": {"command": "x", "args": "a b"}}},
        {"gatway": {}},
        {"gateway": {"toknes": []}},
        {"gateway": {"log": {"levels": {"mooring.connection": "loud"}}}},
        {"gateway": {"log": {"levels": ["mooring.connection"]}}},
        {"gateway": {"tokens": [{"name": "a"}]}},
        {"policy": {"otherwise": "maybe"}},
        {"discovery": "sometimes"},
    ],
    ids=str,
)
def test_a_mistake_is_reported_by_the_loader_and_marked_by_the_schema(wrong: Any, tmp_path: Path) -> None:
    assert complaints(wrong)
    assert loaded(tmp_path, wrong).warnings


@pytest.mark.parametrize(
    "settings",
    [
        {"gateway": {"access_log": "/var/log/access.log"}},
        {"gateway": {"access_log": True}},
        {"gateway": {"audit": "/var/log/audit.jsonl"}},
        {"gateway": {"log": {"levels": {"mooring.connection": "debug"}}}},
        {"gateway": {"key": ["${A}", "${B}"], "cluster": "nats://10.0.0.5:4222"}},
        {"guards": {"budget": 500, "secrets": True}},
    ],
    ids=str,
)
def test_short_forms_and_mappings_are_accepted_by_the_loader_and_the_schema(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    data = {"servers": {"s": {"command": "x"}}, **settings}
    assert complaints(data) == []
    assert loaded(tmp_path, data).warnings == ()


@pytest.mark.parametrize(
    "entry",
    [
        {"command": ["npx", "-y", "x"]},
        {"command": "x", "connectTimeout": "3s", "idle-timeout": 5, "toolTimeoutMs": 900},
        {"command": "x", "timeout": 60, "autoApprove": ["a"], "env": {"PORT": 8080}},
        {"httpUrl": "https://example.com/mcp", "oauth": {"clientId": "a"}},
        {"url": "https://example.com/mcp", "transport": {"type": "http"}},
    ],
    ids=str,
)
def test_spellings_of_other_programs_are_accepted_by_both(entry: dict[str, Any], tmp_path: Path) -> None:
    data = {"mcpServers": {"s": entry}}
    assert complaints(data) == []
    assert len(loaded(tmp_path, data).servers) == 1


def test_ignored_fields_of_other_programs_are_known_to_the_schema() -> None:
    assert complaints({"servers": {"s": {"command": "x", **dict.fromkeys(IGNORED, "1")}}}) == []


def test_editors_may_name_the_schema_in_the_file(tmp_path: Path) -> None:
    data = {"$schema": "./mooring.schema.json", "servers": {"s": {"command": "x"}}}
    assert complaints(data) == []
    assert loaded(tmp_path, data).warnings == ()


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name)
def test_configurations_on_the_pages_fit_the_schema(page: Path) -> None:
    for language, text in re.findall(r"```(ya?ml|jsonc?)\n(.*?)```", page.read_text(), re.DOTALL):
        try:
            data = yaml.safe_load(text) if language.startswith("y") else json.loads(text)
        except ValueError:  # with comments: JSON is a part of YAML but for tabs
            data = yaml.safe_load(re.sub(r"(?m)^\s*//.*$", "", text))
        keys = {"servers", "mcpServers", "mcp", "gateway", "policy", "audit", "discovery"}
        if isinstance(data, dict) and keys & data.keys():
            assert complaints(data) == [], text


@pytest.mark.parametrize(
    "name", ["docs/reference/configuration.md", "docs/troubleshooting.md", "src/mooring/schema.json"]
)
def test_generated_pages_and_the_shipped_schema_are_current(name: str) -> None:
    pages = runpy.run_path(str(ROOT / "scripts/write_reference.py"))["PAGES"]
    assert (ROOT / name).read_text() == pages[ROOT / name](), "run `make format`"


def test_every_setting_names_the_version_that_has_it_first() -> None:
    versions = json.loads((ROOT / "scripts/since.json").read_text())
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert all(f"\n## {version} - " in changelog for version in versions)
    for place, cls in (("server", ServerConfig), ("host", HostConfig)):
        paths = [one.path for one in references_of(cls)]
        listed = [path for added in versions.values() for path in added[place]]
        assert len(listed) == len(set(listed))
        assert set(listed) <= set(paths)
        assert set(listed) == set(paths) or "\n## Unreleased" in changelog, "list new settings in since.json"
