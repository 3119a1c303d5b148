"""MCP Apps: who may use a tool, the origin behind a gateway, and the policy of a page."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.core.apps import (
    MOST_DOMAINS,
    for_model,
    for_pages,
    gateway_origin,
    own_name,
    page_address,
    page_rules,
    readdressed_result,
)
from mooring.core.extensions import ORIGIN
from mooring.core.types import Tool


def tool(**meta: Any) -> Tool:
    return Tool(name="s__t", server="s", remote_name="t", description="", input_schema={}, meta=meta)


@pytest.mark.parametrize(
    ("visibility", "model", "pages"),
    [
        (None, True, True),
        (["model"], True, False),
        (["app"], False, True),
        ("app", False, True),
        ("model", True, False),
        (["app", "model"], True, True),
        ([], False, False),
        (7, False, False),
        ({"model": True}, False, False),
    ],
)
def test_a_tool_is_for_the_model_or_for_pages_as_its_metadata_says(
    visibility: Any, model: bool, pages: bool
) -> None:
    one = tool(ui={"visibility": visibility})
    assert (for_model(one), for_pages(one)) == (model, pages)


def test_a_tool_without_metadata_is_for_everyone_and_has_no_page() -> None:
    assert for_model(tool())
    assert for_pages(tool())
    assert page_address(tool()) is None
    assert for_model(tool(ui="no mapping"))


def test_only_a_ui_address_is_the_page_of_a_tool() -> None:
    assert page_address(tool(ui={"resourceUri": "UI://a/b"})) == "UI://a/b"
    assert page_address(tool(ui={"resourceUri": "https://a/b"})) is None
    assert page_address(tool(ui={"resourceUri": 1}, **{"ui/resourceUri": "ui://old"})) == "ui://old"


@pytest.mark.parametrize(
    ("origin", "found"),
    [
        ({"server": "a", "tool": "t"}, ("a", "t")),
        ({"server": "a"}, ("a", "")),
        ({"server": "", "tool": "t"}, None),
        ({"server": 1, "tool": "t"}, None),
        ({"server": "a", "tool": 1}, None),
        ({"tool": "t"}, None),
        ("a", None),
        (None, None),
    ],
)
def test_the_origin_behind_a_gateway_needs_the_name_of_a_server(origin: Any, found: Any) -> None:
    assert gateway_origin({ORIGIN: origin}) == found


def test_a_tool_behind_a_gateway_has_the_name_that_its_server_gave_it() -> None:
    assert own_name(tool(**{ORIGIN: {"server": "a", "tool": "own"}})) == ("s/a", "own")
    assert own_name(tool(**{ORIGIN: {"server": "a"}})) == ("s", "t")
    assert own_name(tool()) == ("s", "t")


def rules(**ui: Any) -> Any:
    return page_rules({"ui": ui})


def test_a_page_without_csp_may_connect_to_nothing() -> None:
    assert "connect-src 'none'" in page_rules({}).csp
    assert page_rules({}).csp == rules(csp="https://a.example").csp
    assert "frame-src" not in page_rules({}).csp


def test_an_empty_csp_allows_the_host_of_the_page_and_no_frames() -> None:
    policy = rules(csp={}).csp
    assert "connect-src 'self';" in policy
    assert "frame-src 'none';" in policy
    assert policy.endswith("base-uri 'self'")


def test_each_kind_of_domain_goes_into_its_own_directives() -> None:
    found = rules(
        csp={
            "connectDomains": ["https://api.example/"],
            "resourceDomains": ["https://cdn.example"],
            "frameDomains": ["https://frame.example"],
            "baseUriDomains": ["https://base.example"],
        }
    )
    directives = dict(part.split(" ", 1) for part in found.csp.split("; "))
    assert directives["connect-src"] == "'self' https://api.example"
    assert directives["frame-src"] == "https://frame.example"
    assert directives["base-uri"] == "https://base.example"
    for kind in ("script-src", "style-src", "img-src", "media-src", "font-src"):
        assert directives[kind].endswith(" https://cdn.example")
    assert found.external == (
        "https://api.example", "https://base.example", "https://cdn.example", "https://frame.example",
    )  # fmt: skip
    assert found.warnings == ()


@pytest.mark.parametrize(
    "domain", ["https://a.example; script-src *", "https://a b", "*", "javascript:x", 7, None, ""]
)
def test_what_is_no_origin_is_left_out_of_the_policy_with_a_warning(domain: Any) -> None:
    found = rules(csp={"connectDomains": [domain, "https://good.example"]})
    assert found.domains == {"connectDomains": ("https://good.example",)}
    assert len(found.warnings) == 1
    assert "is not an origin" in found.warnings[0]


def test_an_origin_may_have_300_characters() -> None:
    longest = "https://" + "a" * 292
    found = rules(csp={"connectDomains": [longest, f"{longest}a"]})
    assert found.domains["connectDomains"] == (longest,)
    assert len(found.warnings) == 1


def test_domains_beyond_the_limit_are_ignored_with_one_warning() -> None:
    most = [f"https://{number}.example" for number in range(MOST_DOMAINS)]
    assert rules(csp={"connectDomains": most}).warnings == ()
    found = rules(csp={"connectDomains": [*most, "https://more.example"]})
    assert found.domains["connectDomains"] == tuple(most)
    assert found.warnings == ("csp.connectDomains has more than 64 domains; the rest is ignored",)


def test_domains_that_are_no_list_are_ignored_with_a_warning() -> None:
    found = rules(csp={"connectDomains": "https://a.example", "frameDomains": None})
    assert found.domains == {}
    assert found.warnings == ("csp.connectDomains is not a list and is ignored",)


def test_permissions_are_those_that_the_page_asks_for_with_an_object() -> None:
    found = rules(permissions={"camera": {}, "clipboardWrite": {}, "microphone": True, "usb": {}})
    assert found.allow == "camera; clipboard-write"
    assert rules(permissions=["camera"]).allow == ""


def test_the_border_and_the_domain_of_a_page_are_kept_if_their_types_are_right() -> None:
    found = rules(prefersBorder=False, domain="d")
    assert (found.prefers_border, found.domain) == (False, "d")
    found = rules(prefersBorder="no", domain=1)
    assert (found.prefers_border, found.domain) == (None, None)


def test_metadata_of_what_was_read_wins_over_the_list() -> None:
    found = page_rules({"ui": {"domain": "read"}}, {"ui": {"domain": "listed", "prefersBorder": True}})
    assert (found.domain, found.prefers_border) == ("read", True)


def test_every_address_in_a_result_or_prompt_is_changed_and_nothing_else() -> None:
    link = {"type": "resource_link", "uri": "a://x", "name": "n"}
    embedded = {"type": "resource", "resource": {"uri": "a://y", "text": "a://y"}}
    others = [{"type": "text", "text": "a://x", "uri": "a://x", "resource": {"uri": "a://z"}}, "text", None]
    odd = [{"type": "resource_link", "uri": 5}, {"type": "resource", "resource": {"uri": 5}}, {}]

    def content(scheme: str) -> list[Any]:
        return [
            {**link, "uri": f"{scheme}://x"},
            {"type": "resource", "resource": {"uri": f"{scheme}://y", "text": "a://y"}},
            *others,
            *odd,
        ]

    def messages(scheme: str) -> list[Any]:
        listed, *_ = content(scheme)
        return [{"role": "user", "content": content(scheme)}, {"role": "user", "content": listed}, {}, "text"]

    given = {"content": [link, embedded, *others, *odd], "messages": messages("a"), "isError": True}
    found = readdressed_result(given, lambda uri: uri.replace("a://", "b://"))
    assert found == {"content": content("b"), "messages": messages("b"), "isError": True}
    strange = {"content": "text", "messages": 5}
    assert readdressed_result(strange, str.upper) == strange
