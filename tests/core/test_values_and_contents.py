"""Values: fields that are not compared, and contents of resources. Secrets by their place."""

from __future__ import annotations

from mooring.core.redact import secrets_in
from mooring.core.types import Block, Contents
from mooring.core.value import Value, field


class Base(Value):
    name: str
    note: str = field(default="", compare=False)


class More(Base):
    size: int = 0
    hint: str = field(default="", compare=False)


def test_fields_that_are_not_compared_do_not_matter_in_subclasses_either() -> None:
    assert Base(name="a", note="x") == Base(name="a", note="y")
    assert More(name="a", note="x", hint="x") == More(name="a", note="y", hint="y")
    assert More(name="a", size=1) != More(name="a", size=2)
    assert More(name="a") != More(name="b")
    assert hash(More(name="a", note="x")) == hash(More(name="a", note="y"))


def test_the_default_of_a_field_is_shown_in_help() -> None:
    assert repr(field(default=3)) == "3"
    assert repr(field()) == "required"


def block(**resource: str) -> Block:
    return Block({"type": "resource", "resource": {"uri": "a://b", **resource}})


def test_contents_join_their_texts_and_their_bytes() -> None:
    texts = Contents(uri="a://b", server="s", blocks=(block(text="a"), block(text=""), block(text="b")))
    assert (texts.text, texts.data, texts.is_binary) == ("a\n\nb", b"", False)
    mixed = Contents(
        uri="a://b", server="s", blocks=(block(text="a"), block(blob="YWI="), block(blob="Yw=="))
    )
    assert (mixed.text, mixed.data, mixed.is_binary) == ("a", b"abc", True)


def test_the_password_of_a_proxy_is_a_secret_or_else_its_user() -> None:
    assert "p w" in set(secrets_in({"proxy": "http://me:p%20w@host:8080"}))
    assert "me" not in set(secrets_in({"proxy": "http://me:pw@host:8080"}))
    assert "token" in set(secrets_in({"proxy": "http://token@host:8080"}))
    assert set(secrets_in({"proxy": "http://host:8080"})) == set()
