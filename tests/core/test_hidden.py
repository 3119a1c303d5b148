"""What is hidden, as sentences for a person and as the document of `/ready`."""

from __future__ import annotations

from mooring.core.types import Hidden, hidden_document, hidden_lines

SERVER = Hidden(server="new", kind="server", name=None, by="trust", reason="not approved")
TOOL = Hidden(server="shop", kind="tool", name="sell", by="lock", reason="not in the lock")
TEMPLATE = Hidden(server="shop", kind="template", name="memo:///{id}", by="lock", reason="secret")


def test_the_document_names_each_thing_under_its_kind() -> None:
    document = hidden_document(
        [SERVER, TOOL, TEMPLATE], lambda text: text.replace("secret", "***"), details=True
    )
    assert document == {
        "count": 3,
        "by": {"lock": 2, "trust": 1},
        "kinds": {"server": 1, "template": 1, "tool": 1},
        "tools": [
            {"server": "new", "tool": None, "by": "trust", "reason": "not approved"},
            {"server": "shop", "tool": "sell", "by": "lock", "reason": "not in the lock"},
        ],
        "resources": [{"server": "shop", "resource": "memo:///{id}", "by": "lock", "reason": "***"}],
        "prompts": [],
    }


def test_without_details_only_counts_are_shown() -> None:
    assert set(hidden_document([TOOL], str, details=False)) == {"count", "by", "kinds"}


def test_a_sentence_counts_by_kind_and_says_what_to_do() -> None:
    many = [
        TOOL,
        *(Hidden(server="shop", kind="tool", name=f"t{n}", by="lock", reason="x") for n in range(30)),
    ]
    (by, text), (_, other) = hidden_lines([*many, TEMPLATE, SERVER])
    assert by == "lock"
    assert text.startswith("31 tools, 1 template of server 'shop' hidden by the lock: sell (not in the lock)")
    assert "more" in text
    assert "mooring approve shop" in text
    assert other.startswith("Server 'new' is not started (trust): not approved")
    assert "mooring trust" in other
