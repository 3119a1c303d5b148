"""URI templates are matched, never expanded; none takes longer than its length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.core.uris import matches

MATCHING = [
    ("memo:///{id}", "memo:///7"),
    ("memo:///{id}", "memo:///a%20b"),
    ("weather://{city}/{day}", "weather://oslo/today"),
    ("x://{a}.{b}", "x://one.two.three"),
    ("x://{a,b}", "x://1,2"),
    ("file:///{+path}", "file:///a/b/c.txt"),
    ("x://{+base}here", "x://any/where/here"),
    ("x://a{#part}", "x://a#b"),
    ("x://a{#part}", "x://a"),
    ("x://a{.ext}", "x://a.json"),
    ("x://a{/one,two}", "x://a/1/2"),
    ("x://a{/path*}", "x://a/1/2/3"),
    ("x://{path*}", "x://a/b"),
    ("x://a{;p}", "x://a;p=1"),
    ("x://a{?q,n}", "x://a?q=1&n=2"),
    ("x://a{?q,n}", "x://a"),
    ("x://a?f=1{&q}", "x://a?f=1&q=2"),
    ("x://plain", "x://plain"),
    ("x://{a}{b}", "x://12"),
]
OTHERS = [
    ("memo:///{id}", "memo:///a/b"),
    ("memo:///{id}", "memo:///"),
    ("memo:///{id}", "file:///7"),
    ("x://{a}/end", "x://a/ending"),
    ("x://plain", "x://plainer"),
    ("x://plain", "x://plaain"),
    ("x://plain", "lx://plain"),
    ("x://{a}{b}", "x://1"),
    ("x://{unclosed", "x://1"),
    ("x://}", "x://}"),
    ("x://a{?q}", "x://ab"),
]


@pytest.mark.parametrize(("template", "uri"), MATCHING)
def test_a_uri_that_the_template_gives_matches(template: str, uri: str) -> None:
    assert matches(template, uri)


@pytest.mark.parametrize(("template", "uri"), OTHERS)
def test_another_uri_does_not(template: str, uri: str) -> None:
    assert not matches(template, uri)


def test_templates_made_to_take_for_ever_do_not() -> None:
    hostile = "x://" + "{a}a" * 200
    assert not matches(hostile, "x://" + "a" * 5000 + "b")
    assert not matches("{a}" * 2000, "x")


values = st.text(st.sampled_from("abcXYZ019-._~"), min_size=1, max_size=8)


@given(values, values, values)
def test_what_is_put_into_a_template_is_found_in_it_again(one: str, two: str, three: str) -> None:
    assert matches("x://{one}/{two}{?three}", f"x://{one}/{two}?three={three}")


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_are_judged_without_failing(template: str, uri: str) -> None:
    matches(template, uri)
    if not set("{}") & set(template):
        assert matches(template, template)


def test_templates_and_addresses_up_to_their_limits_are_matched() -> None:
    assert matches("x://" + "a" * 1_020, "x://" + "a" * 1_020)
    assert not matches("x://" + "a" * 1_021, "x://" + "a" * 1_021)
    assert matches("x://{a}", "x://" + "a" * 8_188)
    assert not matches("x://{a}", "x://" + "a" * 8_189)
