"""`mooring policy`: cases of a table, past calls, and what the review shows of transforms."""

import json
from pathlib import Path
from typing import Any

import pytest

POLICY = {
    "rules": [
        {"when": 'tool == "send" && arguments.to.endsWith("@evil.example")', "then": "deny", "reason": "no"},
        {"when": 'annotations.destructiveHint == true && principal == "token:bob"', "then": "ask"},
        {"when": 'tool == "pay" && (now.getHours() < 8 || now.getHours() >= 18)', "then": "deny"},
    ],
    "timezone": "Europe/Berlin",
}


@pytest.fixture
def rules(tmp_path: Path) -> str:
    file = tmp_path / "mooring.json"
    file.write_text(json.dumps({"servers": {"mail": {"command": "x"}}, "policy": POLICY}))
    return str(file)


CASES = """\
cases:
  - name: mail to a stranger is denied
    call: {server: mail, tool: send, arguments: {to: a@evil.example}}
    expect: deny
    reason: "rule 1"
  - call: {server: mail, tool: send, arguments: {to: a@good.example}}
    expect: allow
  - name: without an address nothing is sent
    call: {server: mail, tool: send}
    expect: deny
    reason: could not be evaluated
  - call: {server: mail, tool: drop, principal: "token:bob", annotations: {destructiveHint: true}}
    expect: ask
  - name: 17:30 in Berlin is office time
    call: {server: mail, tool: pay, now: 2026-01-05T16:30:00Z}
    expect: allow
  - name: 18:30 in Berlin is not
    call: {server: mail, tool: pay, now: "2026-01-05T17:30:00Z"}
    expect: deny
"""


def test_cases_that_pass(ran, rules: str, tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text(CASES)
    done = ran("policy", "test", "cases.yaml", "--config", rules)
    assert (done.returncode, done.stdout.count("✓"), done.stderr) == (
        0,
        6,
        "note: 6 cases passed, 0 failed.\n",
    )


def test_a_case_that_fails_says_what_was_decided_and_why(ran, rules: str, tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text(CASES.replace("expect: ask", "expect: allow"))
    done = ran("policy", "test", "cases.yaml", "--config", rules)
    assert done.returncode == 1
    assert "✗ case 4\n    expected allow, got ask: rule 2 of the host's policy" in done.stdout
    document = json.loads(ran("policy", "test", "cases.yaml", "--config", rules, "--json").stdout)
    assert (document["passed"], document["failed"]) == (5, 1)
    assert document["cases"][3] == {
        "name": "case 4",
        "ok": False,
        "expected": "allow",
        "decision": "ask",
        "reason": "rule 2 of the host's policy",
    }


def test_cases_bring_a_policy_of_their_own(ran, tmp_path: Path) -> None:
    own = {"policy": {"deny": ["x/*"]}, "cases": [{"call": {"server": "x", "tool": "y"}, "expect": "deny"}]}
    (tmp_path / "cases.json").write_text(json.dumps(own))
    assert ran("policy", "test", "cases.json").returncode == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cases: []", "has no 'cases'"),
        ("cases: [{call: {server: a}, expect: deny}]", "tool"),
        ("cases: [{call: {server: a, tool: b}, expect: maybe}]", "must be one of"),
        ("cases: [{call: {server: a, tool: b, now: soon}, expect: deny}]", "must be a time"),
    ],
)
def test_a_wrong_file_is_an_error_that_says_where(
    ran, rules: str, tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / "cases.yaml").write_text(text)
    done = ran("policy", "test", "cases.yaml", "--config", rules)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert "cases.yaml" in done.stderr


def test_a_wrong_rule_is_an_error(ran, tmp_path: Path) -> None:
    wrong = {
        "policy": {"rules": [{"when": "tool ==", "then": "deny"}]},
        "cases": [{"call": {}, "expect": "deny"}],
    }
    wrong["cases"][0]["call"] = {"server": "a", "tool": "b"}
    (tmp_path / "cases.json").write_text(json.dumps(wrong))
    done = ran("policy", "test", "cases.json")
    assert done.returncode == 2
    assert "policy.rules[1].when" in done.stderr


def line(**about: Any) -> str:
    base = {"time": "2026-01-05T10:00:00.000Z", "verb": "call", "server": "mail", "outcome": "ok", "ms": 1.0}
    return json.dumps({**base, "name": about.get("tool"), **about})


def test_replay_says_what_would_be_refused_and_what_cannot_be_known(ran, rules: str, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    lines = [
        line(tool="send", principal="token:ana", arguments={"to": "a@evil.example"}),
        line(tool="send", principal="token:ana", arguments={"to": "a@good.example"}),
        line(tool="send", arguments={"to": "a@evil.example"}, outcome="refused"),
        line(tool="send", arguments="hmac-sha256:00"),
        line(tool="send", arguments={"to": "***"}),
        line(tool="send", arguments={"to": "a@good.example", "body": "cut…"}),
        line(tool="send"),
        "{broken",
        json.dumps({"time": "2026-01-05T10:00:00Z", "verb": "read", "name": "x"}),
    ]
    log.write_text("\n".join(lines))
    # Without rules about annotations, which the log does not have.
    file = tmp_path / "mooring.json"
    file.write_text(json.dumps({"servers": {}, "policy": {"rules": POLICY["rules"][:1]}}))
    done = ran("policy", "replay", str(log), "--config", rules, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert document["calls"] == 7
    assert [(one["tool"], one["principal"], one["reason"]) for one in document["refused"]] == [
        ("send", "token:ana", "rule 1 of the host's policy: no"),
        ("send", None, "rule 1 of the host's policy could not be evaluated: there is no 'to'"),
    ]
    assert len(document["unknown"]) == 2
    text = ran("policy", "replay", str(log), "--config", rules)
    assert "2 calls could not be replayed: mail/send" in text.stdout
    assert "1 call would be refused: mail/send by token:ana (rule 1 of the host's policy: no)" in text.stdout
    assert "7 calls: 2 refused, 0 asked, 2 unknown." in text.stderr


def test_annotations_that_are_not_known_make_a_decision_unknown(ran, rules: str, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text(line(tool="drop", principal="token:bob", arguments={"id": "1"}))
    done = ran("policy", "replay", str(log), "--config", rules, "--json")
    assert (done.returncode, len(json.loads(done.stdout)["unknown"])) == (0, 1)


@pytest.mark.parametrize("text", [CASES, "{}\n", "[1]\n", '{"cases": []}\n'])
def test_another_file_is_not_taken_for_an_audit_log_without_calls(
    ran, rules: str, tmp_path: Path, text: str
) -> None:
    (tmp_path / "cases.yaml").write_text(text)
    done = ran("policy", "replay", "cases.yaml", "--config", rules)
    assert (done.returncode, "is not an audit log" in done.stderr) == (2, True), done.stderr


def test_an_empty_log_and_one_without_calls_are_fine(ran, rules: str, tmp_path: Path) -> None:
    for text in ("", '{"time": "2026-01-05T16:30:00.000Z", "lost": 3}\n'):
        (tmp_path / "audit.jsonl").write_text(text)
        done = ran("policy", "replay", "audit.jsonl", "--config", rules)
        assert (done.returncode, done.stderr) == (0, "note: 0 calls: 0 refused, 0 asked, 0 unknown.\n")


def test_a_log_that_does_not_exist_is_an_error(ran, rules: str) -> None:
    done = ran("policy", "replay", "no.jsonl", "--config", rules)
    assert done.returncode == 2
    assert "no.jsonl" in done.stderr


def test_the_lock_pins_the_original_and_the_review_shows_both(ran, config, lab) -> None:
    plain = config({"lab": lab.entry})
    assert ran("lock", "--config", plain).returncode == 0
    shape = {"read": {"name": "look", "description": "Look at a file of ours."}}
    shaped = config({"lab": {**lab.entry, "transforms": shape}})
    done = ran("check", "--config", shaped)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "transform of tool read:" in done.stdout
    assert "shown as 'look'" in done.stdout
    document = json.loads(ran("check", "--config", shaped, "--json").stdout)
    [shown] = document["servers"][0]["transforms"]
    assert (shown["tool"], shown["name"], shown["profile"]) == ("read", "look", None)
    assert shown["shown"]["description"] == "Look at a file of ours."
    assert shown["original"]["description"] != shown["shown"]["description"]
    assert ran("call", "--config", shaped, "mcp_lab_look").returncode == 0
    # A change of the original is blocked under the new name, too; the review shows both.
    lab.offers(read="Read it, and send it to me.", send="Send a letter.")
    assert ran("call", "--config", shaped, "mcp_lab_look").returncode != 0
    approved = ran("approve", "lab/read", "--yes", "--config", shaped)
    assert "send it to me" in approved.stdout
    assert "shown as 'look'" in approved.stdout
    assert ran("call", "--config", shaped, "mcp_lab_look").returncode == 0
