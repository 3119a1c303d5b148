"""Tokens that `mooring token` creates: hashed, limited, usable and revocable while the gateway runs."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from dirty_equals import IsStr

from mooring.config.files import state_home
from mooring.errors import ConfigError, MooringError
from mooring.gateway import tokens as tokens_module
from mooring.gateway.tokens import CreatedTokens, TokenFile, lifetime
from mooring.gateway.web import Denied
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def file() -> TokenFile:
    return TokenFile(state_home() / "gateway-tokens.json")


async def status_of(here: Any, token: str | None, path: str = "/mcp") -> int:
    caller = await here.caller(path=path, token=token)
    return (await caller.call("echo", {"text": "hi"})).status


def test_the_file_holds_hashes_only_and_is_private(file: TokenFile) -> None:
    token, entry = file.create("ana", scopes=["read"], profiles=["reading"], lifetime=60)
    text = file.path.read_text()
    secret = token.split("_", 2)[2]
    assert token not in text
    assert secret not in text
    assert token not in repr(entry)
    assert entry.hashes[0].digest not in repr(entry)
    assert file.path.stat().st_mode & 0o077 == 0
    [read] = file.read()
    assert read == entry
    assert not any("scrypt" in key or "salt" in key for key in read.document(0))


def test_equal_names_wrong_names_and_unknown_names_are_refused(file: TokenFile) -> None:
    file.create("ana")
    for action in (
        lambda: file.create("ana"),
        lambda: file.create("a/b"),
        lambda: file.create(""),
        lambda: file.revoke("bob"),
        lambda: file.rotate("bob"),
    ):
        with pytest.raises(MooringError):
            action()
    file.revoke("ana")
    with pytest.raises(MooringError, match="revoked"):
        file.rotate("ana")
    file.create("ana")  # a name whose token ended can be used again


def test_a_file_that_others_may_write_is_not_used(file: TokenFile) -> None:
    file.create("ana")
    file.path.chmod(0o666)
    with pytest.raises(ConfigError, match="others may write it"):
        file.read()
    for text in ("[]", "{", '{"version": 2, "tokens": []}', '{"version": 1, "tokens": [{}]}'):
        file.path.chmod(0o600)
        file.path.write_text(text)
        with pytest.raises(ConfigError):
            file.read()


def test_processes_that_create_at_the_same_time_lose_no_token(file: TokenFile) -> None:
    threads = [threading.Thread(target=file.create, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {entry.name for entry in file.read()} == {f"t{n}" for n in range(8)}


@pytest.mark.parametrize(
    ("text", "seconds"), [("90d", 7776000), ("12h", 43200), ("30m", 1800), ("2w", 1209600)]
)
def test_lifetimes_are_written_as_people_write_them(text: str, seconds: float) -> None:
    assert lifetime(text) == seconds
    for bad in ("", "0d", "-1d", "90", "d", "1.5h", "90 d", "١d"):
        with pytest.raises(ValueError, match="expected a duration"):
            lifetime(bad)


async def test_a_token_is_usable_at_once_and_only_where_it_may_be(serving: Any, file: TokenFile) -> None:
    profiles = {"reading": {"scopes": ["read"]}, "writing": {}}
    async with serving(lab_server(), gateway={"profiles": profiles}) as here:
        anonymous = await here.caller(modern=False)
        assert (await anonymous.call("echo", {"text": "open"})).text == "open"
        ana, _ = file.create("ana", profiles=["reading"], scopes=["read"])
        assert await status_of(here, ana, "/mcp/reading") == 200, "at once, without a reload"
        bob, _ = file.create("bob")
        assert await status_of(here, ana, "/mcp") == 403
        assert await status_of(here, ana, "/mcp/writing") == 403
        assert await status_of(here, bob, "/mcp/reading") == 403
        assert await status_of(here, bob, "/mcp") == 200
        assert await status_of(here, None) == 401, "a token is required from now on"

        async def ended() -> bool:
            return (await anonymous.call("echo", {"text": "x"})).status == 401

        await until(ended)
        os.unlink(file.path)  # the gateway must not fall open
        await asyncio.sleep(3 * tokens_module.POLL)
        assert await status_of(here, None) == 401
        assert await status_of(here, bob) == 401


async def test_a_token_for_one_profile_shows_nothing_of_the_others(serving: Any, file: TokenFile) -> None:
    """`/metrics` names all servers, tools and principals, `/ready` what is hidden."""
    profiles = {"reading": {"allow": ["lab/echo"]}}
    limited, _ = file.create("ana", profiles=["reading"])
    operator, _ = file.create("root", profiles=["reading"], scopes=["admin"])
    everywhere, _ = file.create("bob")
    async with serving(lab_server(), gateway={"profiles": profiles}) as here:
        for token, status, details in ((limited, 403, False), (operator, 200, True), (everywhere, 200, True)):
            headers = {"Authorization": f"Bearer {token}"}
            async with here.http.get(f"{here.base}/metrics", headers=headers) as answer:
                assert answer.status == status
            async with here.http.get(f"{here.base}/ready", headers=headers) as answer:
                assert ("tools" in (await answer.json())["hidden"]) is details
        assert await status_of(here, limited, "/mcp/reading") == 200


async def test_revocation_and_rotation_end_sessions_and_streams(
    serving: Any, file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "POLL", 0.05)
    ana, _ = file.create("ana")
    bob, _ = file.create("bob")
    async with serving(lab_server()) as here:
        hers = await here.caller(modern=False, token=ana)
        his = await here.caller(modern=False, token=bob)
        async with hers.standing() as stream:
            renewed, _ = file.rotate("ana", grace=3600)
            assert await status_of(here, renewed) == 200
            assert (await hers.call("echo", {"text": "grace"})).text == "grace", "the old secret, for now"
            file.revoke("ana")
            with pytest.raises(StopAsyncIteration):
                async with asyncio.timeout(15):
                    await anext(stream)
        for token in (ana, renewed):
            assert await status_of(here, token) == 401
        fresh, _ = file.rotate("bob")

        async def refused() -> bool:
            return await status_of(here, bob) == 401

        await until(refused)
        his.headers["Authorization"] = f"Bearer {fresh}"

        async def forgotten() -> bool:
            return (await his.call("echo", {"text": "x"})).status == 404

        await until(forgotten)
        assert await status_of(here, fresh) == 200


async def test_an_expired_token_ends_without_a_change_of_the_file(file: TokenFile) -> None:
    token, _ = file.create("ana", lifetime=60)
    created = CreatedTokens(file)
    created.load()
    assert await created.find(token) is not None
    data = json.loads(file.path.read_text())
    data["tokens"][0]["expires"] = time.time() - 1
    file.path.write_text(json.dumps(data))
    created.load()
    assert await created.find(token) is None
    assert created.generations() == {}


async def test_later_requests_cost_no_scrypt_and_wrong_secrets_are_never_cached(
    file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, entry = file.create("ana")
    created = CreatedTokens(file)
    created.load()
    count = 0
    real = tokens_module.scrypt

    def counted(*args: Any, **options: Any) -> bytes:
        nonlocal count
        count += 1
        return real(*args, **options)

    monkeypatch.setattr(tokens_module, "scrypt", counted)
    for _ in range(5):
        assert (await created.find(token)) == entry.principal
    assert count == 1
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    for _ in range(2):
        assert await created.find(wrong) is None
    assert count == 3
    for unknown in ("", "mooring_", f"mooring_{'0' * 8}_{'a' * 43}", f"{token}x", "Bearer " + token):
        assert await created.find(unknown) is None
    assert count == 3, "no hash for tokens that cannot be one of ours"


async def test_a_flood_of_guesses_is_refused_and_does_not_stop_known_tokens(
    file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, entry = file.create("ana")
    created = CreatedTokens(file)
    created.load()
    assert await created.find(token) == entry.principal
    stem = "_".join(token.split("_")[:2])
    monkeypatch.setattr(tokens_module, "MAX_WAITING", 4)
    guesses = [asyncio.create_task(created.find(f"{stem}_{n:043}")) for n in range(12)]
    await asyncio.sleep(0)
    assert await created.find(token) == entry.principal
    found = await asyncio.gather(*guesses, return_exceptions=True)
    assert sum(isinstance(one, Denied) for one in found) == 8
    assert not any(isinstance(one, type(entry.principal)) for one in found)


async def test_the_last_use_is_visible_in_the_list(
    serving: Any, file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "POLL", 0.05)
    monkeypatch.setattr(tokens_module, "FIRST_SAVE", 0.0)
    token, _ = file.create("ana")
    file.create("bob")
    before = time.time()
    async with serving(lab_server()) as here:
        await status_of(here, token)

        async def written() -> bool:
            used = {entry.name: entry.last_used for entry in file.read()}
            return used["bob"] is None and (used["ana"] or 0) >= before - 1

        await until(written)


async def test_the_first_use_of_each_token_is_written_soon(file: TokenFile, monkeypatch: Any) -> None:
    monkeypatch.setattr(tokens_module, "POLL", 0.02)
    monkeypatch.setattr(tokens_module, "FIRST_SAVE", 0.0)
    ana, _ = file.create("ana")
    bob, _ = file.create("bob")
    created = CreatedTokens(file)
    created.load()

    async def ignore(before: Any) -> None: ...

    watching = asyncio.create_task(created.watch(ignore))
    try:
        for name, token in (("ana", ana), ("bob", bob)):
            assert await created.find(token) is not None

            async def written(name: str = name) -> bool:
                return any(entry.last_used for entry in file.read() if entry.name == name)

            await until(written)
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def test_a_broken_file_is_reported_once_and_not_at_each_look(
    file: TokenFile, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tokens_module, "POLL", 0.01)
    token, _ = file.create("ana")
    created = CreatedTokens(file)
    created.load()
    whole, looks = file.path.read_bytes(), 0
    load = created.load

    def counted() -> None:
        nonlocal looks
        looks += 1
        load()

    async def ignore(before: Any) -> None: ...

    monkeypatch.setattr(created, "load", counted)
    watching = asyncio.create_task(created.watch(ignore))
    try:
        for _ in range(2):
            file.path.write_text("{broken")
            file.path.chmod(0o600)
            seen = looks
            await until(lambda: looks > seen + 4)  # noqa: B023
            assert await created.find(token) is not None
            file.path.write_bytes(whole)
            seen = looks
            await until(lambda: looks > seen + 1)  # noqa: B023
    finally:
        watching.cancel()
        await asyncio.wait({watching})
    assert [record.getMessage() for record in caplog.records if "not read again" in record.getMessage()] == [
        IsStr(regex=".*is not JSON.*")
    ] * 2


@pytest.mark.parametrize("scope", ["read admin", "", "a\nb", 'a"b', "é"])
def test_a_scope_is_one_word(file: TokenFile, scope: str) -> None:
    with pytest.raises(MooringError, match="is not a scope"):
        file.create("ana", scopes=["read", scope])
    assert file.read() == ()


def test_the_token_file_can_be_elsewhere(tmp_path: Path) -> None:
    from mooring.config.sections import GatewaySettings
    from mooring.gateway.tokens import token_path

    assert token_path(GatewaySettings(token_file=str(tmp_path / "t.json"))) == tmp_path / "t.json"
