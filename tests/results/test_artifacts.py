"""Records of calls: numbered, valid JSON, without secrets."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mooring.results.store import Artifacts


def same(text: str) -> str:
    return text


def test_records_are_numbered_in_order_and_go_on_after_an_earlier_run(tmp_path: Path) -> None:
    for _ in range(2):
        made = Artifacts(tmp_path / "run", same)
        made.write({"tool": "a"})
        made.write({"tool": "b"})
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == [f"call-{number:06}.json" for number in range(1, 5)]


def test_two_writers_in_one_directory_take_no_number_twice(tmp_path: Path) -> None:
    one, two = Artifacts(tmp_path, same), Artifacts(tmp_path, same)
    for _ in range(3):
        one.write({"by": 1})
        two.write({"by": 2})
    assert len(list(tmp_path.iterdir())) == 6


def test_a_record_is_its_owners_alone(tmp_path: Path) -> None:
    assert stat.S_IMODE(Artifacts(tmp_path, same).write({}).stat().st_mode) == 0o600


def test_secrets_are_taken_out_of_values_and_names_alike(tmp_path: Path) -> None:
    secret = 'pass"word\n'
    made = Artifacts(tmp_path, lambda text: text.replace(secret, "[secret]"))
    path = made.write({"a": [{"b": f"x{secret}y"}], secret: {"c": (secret,)}})
    assert json.loads(path.read_text()) == {
        "a": [{"b": "x[secret]y"}],
        "[secret]": {"c": ["[secret]"]},
    }


def test_arguments_named_like_secrets_are_masked_also_where_results_repeat_them(tmp_path: Path) -> None:
    arguments = {
        "user": "ana",
        "password": "correct horse",
        "options": [
            {"apiKey": "k-4711-4711", "page": 2},
            {"Authorization": ["Bearer abcdefgh", {"x": "inner-1"}]},
        ],
        "pin_token": 123456,
        "secret": None,
    }
    content = ({"type": "text", "text": "ana logged in with correct horse and k-4711-4711"},)
    structured = {"sent": {"with": "inner-1"}, "token": "of the result"}
    path = Artifacts(tmp_path, same).write(
        {"arguments": arguments, "content": content, "structured": structured, "is_error": False}
    )
    assert json.loads(path.read_text()) == {
        "arguments": {
            "user": "ana",
            "password": "***",
            "options": [{"apiKey": "***", "page": 2}, {"Authorization": "***"}],
            "pin_token": "***",
            "secret": None,
        },
        "content": [{"type": "text", "text": "ana logged in with *** and ***"}],
        "structured": {"sent": {"with": "***"}, "token": "of the result"},
        "is_error": False,
    }


ANYTHING = st.recursive(
    st.none() | st.floats() | st.text(alphabet=st.characters(codec=None)) | st.binary() | st.builds(object),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(value=ANYTHING)
def test_whatever_is_recorded_the_file_is_valid_json(tmp_path_factory: Any, value: Any) -> None:
    made = Artifacts(tmp_path_factory.getbasetemp() / "artifacts", same)
    path = made.write({"server": "s", "tool": "t", "arguments": value})
    assert json.loads(path.read_text())["tool"] == "t"
    path.unlink()


def test_bottomless_nesting_costs_the_details_and_not_the_record(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    record = json.loads(Artifacts(tmp_path, same).write({"tool": "t", "arguments": deep}).read_text())
    assert (record["tool"], record["problem"]) == ("t", "not JSON-serialisable: RecursionError")
