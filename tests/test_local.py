"""The application's own functions as tools, and its own providers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from mooring import CallTimeout, ConfigError, Host, LocalTools, Provider, Result, Snapshot, Tool
from mooring.core.types import Block
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    item: str
    count: int = 1


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def greet(name: str, tone: Literal["warm", "cold"] = "warm") -> str:
    return f"{tone} hello, {name}"


def buy(order: Order) -> Order:
    return order


def fail() -> None:
    raise LookupError("nothing there")


def thread_name() -> str:
    return threading.current_thread().name


async def _call(name: str, arguments: dict[str, Any] | None = None, *functions: Any) -> Result:
    async with Host(local=[add, greet, buy, fail, thread_name, *functions]) as host:
        return await host.call(name, arguments)


async def test_the_schema_follows_from_the_signature_and_the_docstring() -> None:
    async with Host(local=[add, greet]) as host:
        tool = host.catalog.tools["add"]
        assert tool.description == "Add two numbers."
        assert tool.input_schema["properties"]["a"]["type"] == "integer"
        assert tool.input_schema["required"] == ["a"]
        assert host.catalog.tools["greet"].input_schema["properties"]["tone"]["enum"] == ["warm", "cold"]


async def test_plain_and_async_functions_are_called_by_name() -> None:
    assert (await _call("add", {"a": 1})).structured == {"result": 3}
    assert (await _call("greet", {"name": "Ada"})).text == "warm hello, Ada"


async def test_a_synchronous_function_does_not_hold_up_the_loop() -> None:
    assert (await _call("thread_name")).text != threading.current_thread().name


async def test_models_go_in_and_come_out_as_data() -> None:
    result = await _call("buy", {"order": {"item": "rope"}})
    assert result.structured == {"item": "rope", "count": 1}


async def test_arguments_that_do_not_fit_are_named_one_a_line() -> None:
    result = await _call("add", {"a": "many"})
    assert result.is_error
    assert "a: Input should be a valid integer" in result.text
    assert "pydantic.dev" not in result.text


async def test_what_a_function_raises_is_an_error_that_the_model_reads() -> None:
    result = await _call("fail")
    assert (result.is_error, result.text) == (True, "LookupError: nothing there")


async def test_a_function_that_takes_too_long_is_left() -> None:
    async def wait() -> None:
        await anyio.sleep_forever()

    async with Host(local=[wait]) as host:
        assert isinstance((await host.call("wait", timeout=0.1)).error, CallTimeout)


async def test_own_tools_win_a_name_clash_with_a_server(hosting: Any) -> None:
    def echo(text: str) -> str:
        return f"mine: {text}"

    async with hosting(lab_server(tools=["echo"]), style="raw", local=[echo]) as host:
        assert (await host.call("echo", {"text": "x"})).text == "mine: x"
        assert any("echo" in warning for warning in host.catalog.warnings)


async def test_own_tools_form_a_group() -> None:
    tools = LocalTools(add, name="maths", title="Maths", description="Sums", instructions="Count well.")
    async with Host(local=tools) as host:
        (group,) = host.catalog.groups
        assert (group.title, group.instructions, group.members) == ("Maths", "Count well.", ("add",))


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'add'"):
        LocalTools(add, add)


def test_a_signature_without_a_schema_is_refused_with_its_name() -> None:
    class Odd:
        pass

    def odd(thing: Odd) -> None: ...

    with pytest.raises(ConfigError, match="'odd'"):
        LocalTools(odd)


class Weather:
    """A provider written by a user of the library."""

    name = "weather"

    def __init__(self) -> None:
        self.towns: tuple[str, ...] = ()
        self.stopped = False

    @property
    def snapshot(self) -> Snapshot:
        tools = tuple(Tool(name=town, server=self.name, remote_name=town) for town in self.towns)
        return Snapshot(server=self.name, tools=tools)

    async def start(self) -> None:
        self.towns = ("oslo",)

    async def refresh(self) -> None:
        self.towns = ("oslo", "rome")

    async def call(self, tool: str, arguments: Mapping[str, Any], **_: Any) -> Result:
        return Result(server=self.name, tool=tool, blocks=(Block({"type": "text", "text": f"{tool}: 7°"}),))

    async def stop(self) -> None:
        self.stopped = True


async def test_any_provider_takes_the_same_path_as_a_server() -> None:
    weather = Weather()
    assert isinstance(weather, Provider)
    async with Host(providers=[weather]) as host:
        await until(lambda: "mcp_weather_oslo" in host.catalog.tools)
        assert (await host.call("mcp_weather_oslo")).text == "oslo: 7°"
        report = await host.refresh()
        assert report["weather"].ok
        assert "mcp_weather_rome" in host.catalog.tools
    assert weather.stopped


async def test_a_provider_that_fails_to_start_costs_only_its_own_tools() -> None:
    class Broken(Weather):
        async def start(self) -> None:
            raise OSError("no antenna")

    async with Host(providers=[Broken()], local=[add]) as host:
        assert (await host.call("add", {"a": 1})).text == "3"
        assert (await host.refresh())["weather"].ok
        assert "mcp_weather_rome" in host.catalog.tools


async def test_several_bundles_keep_their_names_and_groups() -> None:
    orders = LocalTools(add, name="orders", title="Orders", instructions="Ask first.")
    billing = LocalTools(greet, buy, name="billing")
    async with Host(local=[orders, thread_name, billing], providers=[LocalTools(fail, name="late")]) as host:
        assert sorted(host.catalog.tools) == ["add", "buy", "fail", "greet", "thread_name"]
        assert {group.id: group.members for group in host.catalog.groups} == {
            "orders": ("add",),
            "billing": ("buy", "greet"),
            "local": ("thread_name",),
            "late": ("fail",),
        }
        done = await host.call("add", {"a": 1})
        assert (done.server, done.text) == ("orders", "3")
        assert (await host.call("fail")).is_error
        assert (await host.refresh()) == {}
        found = await host.session("a").call("tools_select", {"group": "orders"})
        assert found.structured["group"]["instructions"].count("Ask first.") == 1


async def test_of_two_bundles_with_the_same_tool_the_first_counts_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Host(local=[LocalTools(add, name="one"), LocalTools(add, name="two")]) as host:
        assert host.catalog.tools["add"].server == "one"
    assert "hidden by an earlier tool of the application" in caplog.text
