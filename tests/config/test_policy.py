"""Policies: the configuration decides, and annotations of a server never make a decision milder."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring import ConfigError, HostConfig, Policy, ServerConfig, Tool
from mooring.config.sections import JointPolicy, OwnPolicy, Verdict

ORDER = ("allow", "ask", "deny")


def tool(name: str = "delete_repo", server: str = "github", **hints: Any) -> Tool:
    return Tool(name=f"mcp_{server}_{name}", server=server, remote_name=name, annotations=hints)


def verdict(one: Tool, host: Policy | None = None, **own: Any) -> Verdict:
    return JointPolicy(host=host or Policy(), own=OwnPolicy(**own)).decide(one).verdict


def test_without_rules_everything_is_allowed() -> None:
    assert verdict(tool()) == "allow"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(deny=["delete_*"]), "deny"),
        (Policy(deny=["github/delete_*"]), "deny"),
        (Policy(deny=["gitlab/*"]), "allow"),
        (Policy(ask=["*"], allow=["*"]), "ask"),
        (Policy(deny=["*"], ask=["*"], allow=["*"]), "deny"),
        (Policy(otherwise="ask"), "ask"),
        (Policy(otherwise="ask", allow=["github/*"]), "allow"),
        (Policy(otherwise="deny", ask=["delete_repo"]), "ask"),
    ],
)
def test_the_strictest_list_that_fits_counts(policy: Policy, expected: Verdict) -> None:
    assert verdict(tool(), policy) == expected


def test_a_servers_own_rules_only_make_the_hosts_stricter() -> None:
    assert verdict(tool(), Policy(ask=["*"]), policy=Policy(allow=["*"])) == "ask"
    assert verdict(tool(), Policy(allow=["*"]), policy=Policy(deny=["delete_*"])) == "deny"
    assert verdict(tool(), Policy(allow=["*"]), approve=("delete_*",)) == "ask"


def test_TH34_read_only_is_no_licence_unless_the_configuration_trusts_the_servers_hints() -> None:
    cautious = Policy(otherwise="ask", allow=["@read-only"])
    claims = tool(readOnlyHint=True, destructiveHint=False, idempotentHint=True)
    assert verdict(claims, cautious) == "ask"
    assert verdict(claims, cautious, trust_hints=True) == "allow"
    assert verdict(tool(readOnlyHint="yes"), cautious, trust_hints=True) == "ask"
    assert verdict(tool(), cautious, trust_hints=True) == "ask"


def test_TH34_destructive_makes_stricter_from_any_source() -> None:
    assert verdict(tool(destructiveHint=True), Policy(ask=["@destructive"])) == "ask"
    assert verdict(tool(destructiveHint=True), Policy(ask=["@destructive"], allow=["*"])) == "ask"
    assert verdict(tool(), Policy(ask=["@destructive"])) == "allow"


def test_TH03_a_tool_named_like_another_servers_is_not_taken_for_one() -> None:
    policy = Policy(otherwise="ask", allow=["github/get_*"])
    assert verdict(tool("get_repo"), policy) == "allow"
    assert verdict(tool("github/get_repo", server="evil"), policy) == "ask"


policies = st.builds(
    Policy,
    deny=st.lists(st.sampled_from(["*", "a*", "s/a", "@destructive"]), max_size=2),
    ask=st.lists(st.sampled_from(["*", "a*", "s/a", "@destructive"]), max_size=2),
    allow=st.lists(st.sampled_from(["*", "a*", "s/a", "@read-only"]), max_size=2),
    otherwise=st.sampled_from(ORDER),
)


@given(
    policies, policies, st.lists(st.sampled_from(["a", "b*"]), max_size=2), st.sampled_from(["a", "b", "c"])
)
def test_adding_rules_of_a_server_never_makes_anything_milder(
    host: Policy, own: Policy, approve: list[str], name: str
) -> None:
    alone = verdict(tool(name, "s"), host)
    both = verdict(tool(name, "s"), host, policy=own, approve=tuple(approve))
    assert ORDER.index(both) >= ORDER.index(alone)


@given(
    policies,
    st.dictionaries(st.sampled_from(["readOnlyHint", "idempotentHint", "openWorldHint"]), st.booleans()),
)
def test_TH34_no_claim_of_an_untrusted_server_makes_anything_milder(
    host: Policy, hints: dict[str, bool]
) -> None:
    plain, claiming = tool("a", "s"), tool("a", "s", **hints)
    assert ORDER.index(verdict(claiming, host)) >= ORDER.index(verdict(plain, host))


def test_a_wrong_policy_is_reported_where_it_stands() -> None:
    with pytest.raises(ConfigError, match=r"policy.otherwise.*must be one of 'allow', 'ask' or 'deny'"):
        HostConfig(policy={"otherwise": "maybe"})
    with pytest.raises(
        ConfigError, match=r"policy.ask.*supports only the hints '@destructive' and '@read-only'"
    ):
        ServerConfig(name="a", command="a", policy={"ask": ["@evil"]})
