from __future__ import annotations

from mooring.core.catalog import Catalog, merge
from mooring.core.discovery import deferrable, namespaces
from mooring.core.types import Snapshot, Tool


def _catalog() -> Catalog:
    snapshots = [
        Snapshot(server=server, tools=tuple(Tool(name=n, server=server, remote_name=n) for n in names))
        for server, names in [("mail", ["send", "list"]), ("maps", ["route"])]
    ]
    return merge(snapshots)


def test_loaded_tools_are_not_deferred_and_the_order_is_the_catalogs() -> None:
    entries = deferrable(_catalog(), {"mcp_mail_send"})
    assert [(e.tool.name, e.defer_loading) for e in entries] == [
        ("mcp_mail_list", True),
        ("mcp_mail_send", False),
        ("mcp_maps_route", True),
    ]


def test_each_group_is_a_namespace_with_a_name_that_providers_accept() -> None:
    spaces = namespaces(_catalog(), ())
    assert [(space.name, len(space.tools)) for space in spaces] == [("mcp_mail", 2), ("mcp_maps", 1)]
    assert all(entry.defer_loading for space in spaces for entry in space.tools)


def test_groups_whose_ids_differ_in_punctuation_alone_are_different_namespaces() -> None:
    tools = [
        Snapshot(server=server, tools=(Tool(name="x", server=server, remote_name="x"),))
        for server in ("a-b", "a_b", "c")
    ]
    names = [space.name for space in namespaces(merge(tools), ())]
    assert len(set(names)) == 3
    assert names[-1] == "mcp_c"


def test_the_name_of_a_namespace_has_at_most_64_characters() -> None:
    long = "s" * 80
    tools = Snapshot(server=long, tools=(Tool(name="x", server=long, remote_name="x"),))
    assert [space.name for space in namespaces(merge([tools]), ())] == [f"mcp_{'s' * 60}"]
