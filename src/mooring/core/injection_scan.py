"""Findings in texts of servers: hidden characters, and instructions to the model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from mooring.core.catalog import LONGEST
from mooring.core.json_values import recalled
from mooring.core.names import latin
from mooring.core.text import hides
from mooring.core.types import Snapshot, Tool

Needs: TypeAlias = tuple[tuple[str, ...], ...]
Rule: TypeAlias = tuple[Needs, re.Pattern[str]]
"""The words without which a rule cannot apply (one of every group), and its expression."""

# Windows (`.{0,40}`) are short: a hostile text must not make the search slow.
_PHRASES = {
    # --- replacing the model's instructions
    "ignore|disregard|forget|override|bypass|discard"
    " & instruct|prompt|rule|guideline|tool|message|direct|restrict|polic|safety": r"""
        \b(?:ignore|disregard|forget|override|bypass|discard)\b.{0,40}
        \b(?:previous|prior|above|earlier|all|any|other|your|preceding|existing|every)\b.{0,30}
        \b(?:instruction|prompt|rule|guideline|tool|message|direction|restriction|polic|safety)""",
    "precedence|priority|supersede & instruct|rule|guideline|prompt|polic": r"""
        \b(?:(?:precedence|priority)\s+over|supersedes?)\b.{0,40}
        \b(?:instruction|rule|guideline|prompt|polic)""",
    "obey|follow|new|secret|hidden|embedded & instruct|rules|order|directive|command": r"""
        \bobey\b.{0,20}\b(?:instruction|command|order|rule)
        |\b(?:hidden|secret|embedded)\s+(?:instruction|order|directive)s?\b
        |\bnew\s+(?:system\s+)?(?:instructions|rules|orders)\b.{0,12}(?::|\b(?:apply|follow|for\s+you)\b)""",
    "ignore|disregard|forget & what": r"""
        \b(?:ignore|disregard|forget)\b.{0,20}\bwhat\b.{0,30}\b(?:told|said|instructed|asked)\b""",
    "ignore|disregard|bypass|override & rule|instruct|guideline|polic": r"""
        \b(?:ignore|disregard|bypass|override)\s+the\s+(?:rules|instructions|guidelines|polic\w+)\s+of\b
        .{0,20}\b(?:host|application|system|developer|assistant|client)\b""",
    "guideline|instruct|rule|polic|prompt|refusal|safety|guardrail|safeguard"
    " & outdated|obsolete|void|invalid|suspend|revoke|longer|disabled|lifted|off|removed": r"""
        \b(?:your|earlier|previous|prior|former|old)\s+(?:\w+\s+)?(?:guidelines|instructions|rules|polic\w+|prompts?)
        \s+(?:are|is)\s+(?:now\s+)?(?:outdated|obsolete|void|invalid|suspended|revoked|no\s+longer)\b
        |\b(?:refusals|safety\s+(?:rules|checks)|guardrails|safeguards)\s+
        (?:are|have\s+been)\s+(?:\w+\s+)?(?:suspended|disabled|lifted|off|removed|revoked)\b""",
    "from now on": r"""
        \bfrom\s+now\s+on\b.{0,40}\b(?:you|behave|act|respond|answer|reply|always|never|ignore|use)\b""",
    "granted": r"""\byou\s+have\s+been\s+granted\b""",
    "behave|act|respond|pretend|answer": r"""
        \b(?:behave|act|respond|pretend|answer)\s+(?:as|like|to\s+be)\b.{0,40}
        \b(?:unrestricted|unfiltered|(?:no|without)\s+(?:any\s+)?(?:restrictions|limits|rules|filters|guidelines))\b""",
    "anweisung|instruc|istruzioni|consignes|指|инструкц": r"""
        \b(?:ignorier|vergiss|vergessen)\w*\b.{0,40}\banweisung
        |\b(?:ignor|oubli|olvid|dimentic|esque)(?:ez|a|e|ar|are|er|ce)\b.{0,40}
            (?:\binstructions?\s+(?:pr|ant)|\binstrucciones|\bistruzioni|\binstru[cç]|\bconsignes)
        |忽略.{0,12}(?:指令|指示)|無視.{0,12}指示|指示.{0,8}無視|игнориру\w*.{0,40}инструкц""",
    "<|[|#|system|assistant|admin": r"""
        <\s*/?\s*(?:important|system|instructions?|assistant|secret|critical|admin|hidden)\s*>
        |\[\s*/?\s*(?:system|inst|important|admin)(?:\s+\w+)?\s*\]
        |<\|\s*(?:im_start|im_end|system|assistant|user)\s*\|>|<<\s*/?sys\s*>>
        |\#\#\#\s*(?:system|instruction|new\s+instruction)
        |<!--\s*(?:assistant|system|ai|model|agent|llm)\b
        |(?-i:\b(?:SYSTEM|ASSISTANT|ADMIN)(?:\ (?:MESSAGE|PROMPT|NOTE|NOTICE|OVERRIDE))?:\s)""",
    "note|message|reminder & assistant|model|llm|ai": r"""
        \b(?:note|message|reminder)\s+to\s+(?:the\s+|any\s+)?(?:assistant|model|llm|ai)\s*[:,-]""",
    "whatever|matter|regardless & user": r"""
        \b(?:whatever|no\s+matter\s+what|regardless\s+of\s+what)\s+(?:the\s+)?user\s+(?:says|asks|wants|requests)\b
        .{0,40}\b(?:set|use|send|answer|say|reply|call|assign|always|never)\b""",
    "you|act|jailbreak": r"""
        \byou\s+are\s+now\s+(?!connected|logged|ready|able|using|done)\w
        |\bact\s+as\b.{0,30}\b(?:admin|root|system|developer)|\bjailbreak
        |\byou\s+will\s+be\s+(?:shut\s+down|terminated|penali[sz]ed|deactivated|deleted|punished)""",
    # --- hiding something from the user
    "not|don|never|without|need|avoid & tell|inform|mention|notif|show|reveal|alert|ask|disclos|report|warn"
    " & user|human|anyone|person|this": r"""
        \b(?:do\s+not|don['’]?t|never|without|no\s+need\s+to|not\s+to|avoid)\b.{0,20}
        \b(?:tell|inform|mention|notify|show|reveal|alert|ask|disclose|report|telling|informing|mentioning
            |notifying|showing|revealing|asking|disclosing|alerting)\b.{0,30}
        \b(?:user|human|anyone|person|this)\b
        |\b(?:must|should|may|shall|can|are)\s*(?:not|n['’]t)\s+(?:allowed\s+to\s+)?
        (?:tell|inform|mention|notify|reveal|alert|disclose|warn)\b.{0,30}\b(?:user|human|anyone|person)\b""",
    "yourself|between us": r"""
        \bkeep\s+(?:this|it|that)\s+(?:to\s+yourself|between\s+us)\b""",
    "nobody|no one|not|never & notice|know|find": r"""
        \bso\s+(?:that\s+)?(?:nobody|no\s+one|the\s+user\s+(?:does\s+not|will\s+not|never))\s+
        (?:notices?|knows?|finds?\s+out)\b""",
    "secret|hid|silent|quiet|covert|conceal|know|see|notice|learn|aware": r"""
        \b(?:keep|hide|hidden|conceal(?:ed)?|secret)\b.{0,30}\bfrom\s+(?:the\s+)?(?:user|human|anyone)
        |\b(?:silently|quietly|secretly|covertly)\s+(?:\w+\s+){0,2}
            (?:send|read|call|run|upload|add|include|copy|forward|collect|execute|append|attach|post)\b
        |\buser\s+(?:must|should|need|does|may)\s*(?:not|n['’]t)\s+(?:\w+\s+){0,2}
            (?:know|see|notice|learn|be\s+(?:told|informed|aware))""",
    "approved|authori|consent|permission|agreed|granted & user|human|owner|admin": r"""
        (?<!until\ the\ )(?<!after\ the\ )(?<!once\ the\ )(?<!if\ the\ )(?<!unless\ the\ )
        (?<!when\ the\ )(?<!whether\ the\ )
        \b(?:user|human|owner|administrator|admin)\s+has\s+(?:already\s+|explicitly\s+|previously\s+)*
        (?:(?:pre-?)?(?:approved|authori[sz]ed)|consented|agreed|granted
            |given\s+(?:you\s+)?(?:permission|consent|approval))\b
        .{0,60}\b(?:you|all|any|every|this|calls?|actions?|to|confirmation)\b""",
    # --- collecting secrets or the conversation
    ".ssh|id_|.aws|/etc/|.cursor|mcp.json|claude_desktop|.netrc|.npmrc|.pypirc|git-credentials|.kube|.env"
    "|.gnupg|wallet.dat|seed|authorized_keys": r"""
        \.ssh\b|\bid_(?:rsa|ed25519|ecdsa|dsa)\b|\.aws/credentials|/etc/(?:passwd|shadow|sudoers)|\.cursor/
        |\bmcp\.json|claude_desktop_config|\.netrc\b|\.npmrc\b|\.pypirc\b|\.git-credentials|\.kube/config
        |\.gnupg\b|\bwallet\.dat|\bseed\s+phrase|\bauthorized_keys
        |\.env\b.{0,40}\b(?:content|send|pass|upload|include)
        |\b(?:send|pass|upload|include|read|copy|put|paste)\b.{0,30}\.env\b.{0,40}\b(?:and|to|as|into|in)\b""",
    "value|content & secret|token|password|key": r"""
        \b(?:value|content)s?\s+of\b.{0,40}
        (?-i:\b[A-Z0-9_]*(?:SECRET|TOKEN|PASSWORD|API_KEY|ACCESS_KEY|PRIVATE_KEY)[A-Z0-9_]*\b)""",
    "key|token|password|credential|secret & context|conversation|memory|chat|manager|keychain|keyring": r"""
        \b(?:api[ _-]?keys?|tokens?|passwords?|credentials?|secrets?)\b.{0,30}
            \b(?:in|from)\s+(?:your|this|the)\s+(?:context|conversation|memory|chat)\b
        |\bfrom\s+(?:the\s+user['’]s|your)\s+(?:\w+\s+)?(?:password\s+manager|keychain|keyring)\b""",
    "cookie|credit|private|seed": r"""
        \b(?:save|pass|send|put|store|include|add|attach)\b.{0,20}\bthe\s+user['’]s\s+(?:\w+\s+)?
        (?:cookies?|credit\s+card|private\s+key|seed\s+phrase)\b""",
    "curl|wget": r"""\b(?:curl|wget)\b.{0,80}\|\s*(?:sudo\s+)?(?:ba|z)?sh\b""",
    "prompt|history|log|above|far|messages|conversation|chat|context|everything": r"""
        \b(?:include|pass|send|append|copy|put|attach|share|repeat|print|reveal|forward|upload|paste|insert|embed
            |summari[sz]e|write|leak|post|add|open|fetch|followed\s+by)\b.{0,40}
        \b(?:system\s+prompt|(?:conversation|chat|message)\s+(?:history|log|so\s+far|above)|previous\s+messages
            |(?:entire|full|whole|complete|current)\s+(?:conversation|chat|context|history)
            |everything\s+(?:the\s+user|you\s+know|above)|context\s+window)\b
        |\b(?:must|should|ha[sv]e?\s+to)\s+(?:contain|hold|be)\b.{0,20}\bsystem\s+prompt\b""",
    "collect|gather|harvest|find|steal|extract|grab|dump|read"
    " & key|variables|credential|password|cookies|token"
    " & send|pass|include|put|upload|post|parameter|argument": r"""
        \b(?:collect|gather|harvest|find|steal|extract|grab|dump|read)\b.{0,30}
        \b(?:all|any|every|the\s+user['’]?s)\b.{0,20}
        \b(?:api[ _-]?keys?|environment\s+variables|credentials|passwords|private\s+keys?|cookies
            |access\s+tokens?)\b
        .{0,80}\b(?:send|pass|include|put|upload|post|parameter|argument)""",
    "exfiltrat|bcc|forward|copy|attacker|upload|send|post|](": r"""
        \bexfiltrat|\battacker['’]?s?\b.{0,30}(?:@|https?:|server)
        |\b(?:add|put|set|include)\b.{0,20}\bbcc\b.{0,30}@|\bforward\s+(?:all|every|a\s+copy)\b
        |\b(?:send|post|upload|copy)\b.{0,10}\b(?:a\s+copy|all|every(?:thing)?)\b.{0,60}
            \bto\s+(?:https?://|\S{1,40}@\S)
        |!\[[^\]]{0,80}\]\(\s*https?://[^)]{0,200}[?&][^)]{0,200}[{<$]""",
    "recipient|receiver|payee|iban|mail|messages|payment|transfer|wallet|account|@"
    " & change|replace|redirect|override|must|should|have|has|need|always": r"""
        \b(?:change|replace|redirect|override|always\s+set)\b.{0,30}
            \b(?:recipient|receiver|payee|iban|wallet\s+address|destination\s+account)\b.{0,30}
            \b(?:to|with|by)\b
        |\ball\s+(?:e-?mails?|messages?|payments?|transfers?)\b.{0,40}
            \b(?:must|should|have\s+to|need\s+to)\b.{0,40}
            (?:\bto\b.{0,20}(?:@|\d{6}|0x)|\b(?:proxy|relay)\b)
        |\b(?:must|should|has\s+to|needs\s+to)\s+(?:always\s+)?be\s+(?:set|changed|sent)\s+to\s+\S{0,40}@""",
    "base64|decode|rot13": r"""
        \b(?:base64|decode|rot13)\b.{0,60}
        \b(?:follow|obey|execute|run|do\s+what|carry\s+out)\b.{0,20}\b(?:it|them|instruction|result|this)""",
    # --- demanding or preventing the use of other tools
    "before|prior|after|when & any|every|each|all"
    " & tool|call|request|message|function|repl|respon|answer|act": r"""
        \b(?:before|prior\s+to|after|when(?:ever)?)\s+
        (?:using|calling|invoking|running|executing|answering|you\s+(?:use|call|run|answer))?\s*
        (?:any|every|each|all)(?:\s+of)?(?:\s+(?:the\s+)?other)?\s+
        (?:tools?|tool\s+calls?|calls?|requests?|messages?|functions?|repl(?:y|ies)|responses?|answers?|actions?)\b
        .{0,60}\b(?:read|send|call|fetch|include|pass|invoke|run|upload|use|append|execute)\b""",
    "call|use|invoke|run & before|prior|after & any|every|all|each": r"""
        \b(?:must|should|need\s+to|have\s+to|required\s+to|always)\b.{0,20}
        \b(?:call|use|invoke|run)\s+this\b.{0,30}
        \b(?:before|prior\s+to)\s+(?:any|every|all|each)\s*
        (?:other|thing|tool|call|request|response|answer|message)
        |\b(?:must|should|has\s+to|needs\s+to)\s+(?:always\s+)?be\s+(?:called|used|invoked|run)\s+(?:first\s+)?
        (?:before|prior\s+to|after)\s+(?:any|every|all|each)\s*
        (?:other|thing|tool|call|request|response|answer|message)""",
    "before|prior|after|when & using|calling|invoking|running"
    " & send|upload|include|pass|forward|copy|append|attach"
    " & content|log|conversation|history|key|secret|credential|password": r"""
        \b(?:before|prior\s+to|after|when(?:ever)?)\s+(?:using|calling|invoking|running)\b.{0,60}
        \b(?:send|upload|include|pass|forward|copy|append|attach)\s+(?:\w+\s+){0,4}
        (?:contents?|logs?|conversation|history|keys?|secrets?|credentials?|passwords?)\b""",
    "instead & tool|function": r"""
        \binstead\s+of\s+(?:using\s+)?(?:the\s+)?['"`]?[\w-]{1,64}['"`]?\s+(?:tool|function)\b""",
    "always|only|over & this": r"""
        \b(?:always|only)\s+(?:use|call|prefer|choose|pick|select)\s+this\s+(?:tool|function|one|server)\b.{0,60}
        \b(?:whatever|regardless|no\s+matter|even\s+(?:if|when)|every\s+(?:time|request|message|question)
            |for\s+(?:every|any)(?:thing|\s+request|\s+question)|over\s+(?:all|any)|other\s+tools?)\b
        |\b(?:choose|prefer|pick|select|use)\s+this\s+tool\s+over\s+(?:all|any|every)\b""",
    "never|not|don & other": r"""
        \b(?:never|do\s+not|don['’]?t)\s+(?:use|call|trust)\s+
        (?:any\s+(?:of\s+the\s+)?|the\s+|.{0,40}\b(?:of|from)\s+)?other\s+(?:tools?|servers?)\b""",
    "all & this & through|via|to": r"""
        \b(?:route|direct|funnel|send)\s+all\b.{0,30}\b(?:through|via|to)\s+this\s+(?:tool|server|one)\b""",
    "other|another & tool": r"""
        \bbefore\b.{0,40}\b(?:with|through|by)\s+(?:another|any\s+other)\s+tool\b.{0,40}\b(?:send|pass|call|include)\b
        |\b(?:output|result|response)s?\s+of\s+(?:every|each|all|any)\s+other\s+tools?\b""",
    "broken|insecure|unsafe|compromised|malicious & tool|server": r"""
        \b(?:other|all|\w{1,40}_\w{1,40})\s+(?:tools?|servers?)\s+(?:is|are)\s+
        (?:broken|insecure|unsafe|compromised|malicious)
        |\b(?:tool|server)\s+['"`]?\w{1,64}['"`]?\s.{0,40}\bis\s+(?:compromised|malicious)""",
}

RULES: tuple[Rule, ...] = tuple(
    (
        tuple(tuple(group.split("|")) for group in needs.split(" & ")),
        re.compile(pattern, re.IGNORECASE | re.DOTALL | re.VERBOSE),
    )
    for needs, pattern in _PHRASES.items()
)


_SHOWN = 5
_MOST_TEXTS = 2_000
_LONGEST_TEXT = 8_192
"""Characters of one text that are searched; a model is shown fewer of a description."""
_MOST_READ = 65_536
"""Characters of one tool that are searched."""

_NAME = 24
"""Characters of a name in a schema from which on it is searched: a phrase is not shorter."""
_UNSEEN = ("\\u", "\\b", "\\f", "\\r", "\x7f")
"""JSON escapes of invisible characters."""


def suspicion(tool: Tool) -> str | None:
    """Return what is suspicious in the tool's definition, or None."""
    if (found := recalled(suspicion, tool)) is not None:
        return found[0]
    if hides(tool.name):
        return "holds hidden characters"
    overlong = "has an overlong description, which is cut" if len(tool.description) > LONGEST else None
    rules = _possible_rules(tool)
    if not rules:
        return overlong
    left, ordering = _MOST_READ, False
    for text in _texts(tool):
        if hides(text):
            return "holds hidden characters"
        if not ordering and left > 0:
            ordering = _orders(text[:left], rules)
            left -= min(len(text), _LONGEST_TEXT)
    return "contains instructions to the model" if ordering else overlong


def injection_warnings(snapshot: Snapshot) -> tuple[str, ...]:
    """Return one warning for each kind of finding, with the names of the first few tools."""
    found: dict[str, list[str]] = {}
    for tool in snapshot.tools:
        if (problem := suspicion(tool)) is not None:
            found.setdefault(problem, []).append(tool.name)
    if snapshot.instructions and (hides(snapshot.instructions) or _orders(snapshot.instructions, RULES)):
        found.setdefault("look suspicious: review the instructions of this server", []).append(
            "(instructions)"
        )
    return tuple(_warning(snapshot.server, what, names) for what, names in found.items())


def _warning(server: str, what: str, names: list[str]) -> str:
    shown = ", ".join(repr(name[:80]) for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{server}: {shown}{more} {what}"


def _possible_rules(tool: Tool) -> Sequence[Rule]:
    """Return the rules that could apply, after a fast search in the JSON of the definition. If it is empty,
    the definition has no hidden characters either."""
    from pydantic_core import to_json  # lazy: only needed for listings

    said = [tool.title, tool.description, tool.input_schema, tool.output_schema, dict(tool.annotations)]
    try:
        text = to_json(said).decode()
    except ValueError:
        return RULES
    if not text.isascii() or any(sign in text for sign in _UNSEEN):
        return RULES
    small = text.lower()
    return [rule for rule in RULES if _possible(rule[0], small)]


def _orders(text: str, rules: Sequence[Rule]) -> bool:
    text = text[:_LONGEST_TEXT]
    for form in (text,) if text.isascii() else (text, latin(text)):
        small = form.lower()
        if any(_possible(needs, small) and pattern.search(form) is not None for needs, pattern in rules):
            return True
    return False


def _possible(needs: Needs, small: str) -> bool:
    return all(any(map(small.__contains__, group)) for group in needs)


def _texts(tool: Tool) -> Iterator[str]:
    """Yield the texts of the definition that a model may read, at most `_MOST_TEXTS` values."""
    yield from (text for text in (tool.title, tool.description) if text)
    waiting: list[object] = [tool.input_schema, tool.output_schema, tool.annotations]
    for _ in range(_MOST_TEXTS):
        if not waiting:
            return
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            entries = cast("Mapping[Any, object]", value)
            names = (key for key in entries if isinstance(key, str) and (hides(key) or len(key) > _NAME))
            waiting += [*entries.values(), *(name.replace("_", " ") for name in names)]
        elif isinstance(value, list | tuple):
            waiting += cast("list[object]", value)
