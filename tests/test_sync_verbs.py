"""`SyncHost`, `SyncSession` and `SyncLogin` have the verbs of `Host`, `Session` and `Login`."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mooring import CallStarted, Host, Session, SyncHost, SyncSession
from mooring.auth.login import Login, SyncLogin
from tests.lab.stdio import lab_server
from tests.lab.wait import until_true

ONLY_ASYNC = {"provider"}
"""Providers have no synchronous form."""
ONLY_SYNC = {"open"}
INSIDE = {"on_success", "settle"}
"""Attributes of a login that the host uses."""


def public(names: Iterable[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def signature(function: Any) -> list[tuple[str, Any, Any]]:
    given = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in given if one.name != "self"]


def differences(ours: Any, theirs: Any, names: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        one, two = getattr(ours, name, None), getattr(theirs, name, None)
        if callable(one) and callable(two) and signature(one) != signature(two):
            found[name] = (signature(one), signature(two))
    return found


def test_a_sync_host_has_every_verb_of_a_host_with_the_same_signature() -> None:
    host, sync = Host(), SyncHost()
    verbs = public(dir(host)) - ONLY_ASYNC
    assert public(dir(SyncHost)) - ONLY_SYNC == verbs
    # The properties of a SyncHost work only while it runs.
    verbs -= {name for name in verbs if isinstance(getattr(SyncHost, name), property)}
    assert differences(sync, host, verbs) == {}


def test_a_sync_session_has_every_verb_of_a_session_with_the_same_signature() -> None:
    verbs = public(dir(Session)) - INSIDE
    assert public(dir(SyncSession)) == verbs
    assert differences(SyncSession, Session, verbs) == {}


def test_a_sync_login_has_every_verb_of_a_login_with_the_same_signature() -> None:
    verbs = public(dir(Login)) - INSIDE
    assert verbs <= public(dir(SyncLogin))
    assert differences(SyncLogin, Login, verbs) == {}
    attributes = set(re.findall(r"self\.([a-z]\w*)", inspect.getsource(Login.__init__))) - INSIDE
    assert attributes >= {"server", "url", "host", "scopes", "issuer", "state"}
    for attribute in attributes:
        assert f"self.{attribute}" in inspect.getsource(SyncLogin.__init__)


async def _cells() -> str:
    """Cells of a notebook: each runs inside the loop of the kernel."""
    host = SyncHost([lab_server()]).open()
    await asyncio.sleep(0)
    said = host.call("mcp_lab_echo", {"text": "cell"}).text
    host.close()
    host.close()
    with pytest.raises(RuntimeError, match=r"open\(\)"):
        host.call("mcp_lab_echo")
    with pytest.raises(RuntimeError, match="used once"):
        host.open()
    return said


@pytest.mark.usefixtures("leaves_nothing")
def test_open_and_close_are_for_notebooks() -> None:
    assert asyncio.run(_cells()) == "cell"


def test_files_are_read_again_on_reload(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {}}')
    with SyncHost.from_config(file) as host:
        assert host.status() == ()
        file.write_text('{"mcpServers": {"a": {"command": "x", "disabled": true}}}')
        host.reload()
        assert [status.name for status in host.status()] == ["a"]


def test_events_of_some_kinds_come_alone_and_end_with_their_reader() -> None:
    with SyncHost([lab_server()]) as host:
        host.ready(20)
        events = host.events(CallStarted)
        host.call("mcp_lab_echo", {"text": "x"})
        assert isinstance(next(events), CallStarted)
        events.close()  # pyright: ignore[reportAttributeAccessIssue]
        until_true(lambda: not host._host._events.streams)
