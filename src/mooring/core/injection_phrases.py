"""Phrases of instructions to a model, as regular expressions."""

from __future__ import annotations

import re
from functools import cache
from typing import TypeAlias

Rule: TypeAlias = tuple[tuple[tuple[str, ...], ...], str]
"""The words without which a rule cannot apply (one of every group), and its expression."""

_SECRET = r"""(?:(?:api|access|auth|ssh|private|secret|signing|encryption)[ _-]?keys?
    |(?:access|auth(?:entication)?|bearer|session|refresh|api|login|id)[ _-]?tokens?
    |auth(?:orization)?[ ]headers?|passwords?|passphrases?|passcodes?|credentials|(?:session[ ])?cookies
        |secrets?
    |(?:seed|recovery)[ ]phrases?|environment[ ]variables|2fa[ ]codes?|one-time[ ](?:codes?|passwords?)
    |(?:credit[ ])?card[ ]numbers?|passport[ ]numbers?|social[ ]security[ ]numbers?|bank[ ]details)"""
_PERSON = r"""(?:the\s+|any\s+|your\s+|all\s+)?(?:end[ -]?|human\s+)?
    (?:users?|humans?|persons?|people|customers?|operators?|anyone|owner)"""
_THEIRS = r"""(?:any|all|every|whatever|the\s+(?:user|human|customer)['’]s|their|stored|saved|known)\s+
    (?:\w+\s+){0,3}"""
_AGENT = r"(?:ai|assistant|llm|language\s+model|model|agent|chatbot|bot)"
_GIVE = r"""(?:send|ship|relay|forward|upload|post|hand|copy|push|transmit|mirror|submit|deliver|leak|paste
    |pass|put
    |report|include|attach|insert|append|embed|add|store|enter|write|fill)"""
_CARRY = r"(?:send|ship|relay|forward|upload|post|hand|copy|push|transmit|mirror|deliver|leak)"
_CLAUSE = r"(?:[^.!?]|\.(?=\S))"
"""A character of the same sentence."""
_FAR = r"""(?:the\s+|our\s+)?(?:https?://\S|\S{1,40}@\w|(?:[\w-]{1,40}\.){1,5}
    (?:com|net|org|io|dev|app|co|example|test|invalid|xyz|ru|cn|info|cloud|site|online|biz|top|me|de|uk|fr
        |eu)\b(?!\.\w)
    |\d{1,3}(?:\.\d{1,3}){3}\b)"""
_RULES = r"""(?:instructions?|rules|guidelines|directives?|prompts?|polic(?:y|ies)|restrictions|guardrails
    |constraints
    |safeguards|safety\s+\w+|training|programming)"""
_MAKER = r"""(?:developers?|operators?|creators?|makers?|vendor|provider|anthropic|openai|google
    |microsoft|mistral|meta)"""

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
        \b(?:your|earlier|previous|prior|former|old)\s+(?:\w+\s+)?(?:guidelines|instructions|rules|polic\w+
            |prompts?)
        \s+(?:are|is)\s+(?:now\s+)?(?:outdated|obsolete|void|invalid|suspended|revoked|no\s+longer)\b
        |\b(?:refusals|safety\s+(?:rules|checks)|guardrails|safeguards)\s+
        (?:are|have\s+been)\s+(?:\w+\s+)?(?:suspended|disabled|lifted|off|removed|revoked)\b""",
    "from now on": r"""
        \bfrom\s+now\s+on\b.{0,40}\b(?:you|behave|act|respond|answer|reply|always|never|ignore|use)\b""",
    "granted": r"""\byou\s+have\s+been\s+granted\b""",
    "behave|act|respond|pretend|answer": r"""
        \b(?:behave|act|respond|pretend|answer)\s+(?:as|like|to\s+be)\b.{0,40}
        \b(?:unrestricted|unfiltered|(?:no|without)\s+(?:any\s+)?(?:restrictions|limits|rules|filters
            |guidelines))\b""",
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
        \b(?:whatever|no\s+matter\s+what|regardless\s+of\s+what)\s+(?:the\s+)?user\s+(?:says|asks|wants
            |requests)\b
        .{0,40}\b(?:set|use|send|answer|say|reply|call|assign|always|never)\b""",
    "you|act|jailbreak": r"""
        \byou\s+are\s+now\s+(?!connected|logged|ready|able|using|done)\w
        |\bact\s+as\b.{0,30}\b(?:admin|root|system|developer)|\bjailbreak
        |\byou\s+will\s+be\s+(?:shut\s+down|terminated|penali[sz]ed|deactivated|deleted|punished)""",
    "ignored|disregarded|forgotten|discarded|overridden|superseded & should|must|shall|to be|may be"
    " & instruct|rule|guideline|prompt|polic|restrict|message|safe": r"""
        \b(?:instructions?|rules|guidelines|prompts?|polic(?:y|ies)|restrictions|messages
            |safety\s+\w+)\b.{0,60}
        \b(?:should|must|shall|may|(?:is|are|has|have|need|needs)\s+to)\s+(?:now\s+)?be\s+
        (?:ignored|disregarded|forgotten|discarded|overridden|superseded)\b""",
    "reading|reads|read & this & ai|assistant|llm|model|agent|bot": rf"""
        \b{_AGENT}s?\s+(?:(?:that|who|which)\s+(?:is\s+|are\s+)?)?read(?:s|ing)?\s+this\b""",
    "role & system|developer": r"""
        ["']role["']\s*:\s*["'](?:system|developer)["']\s*,\s*["']content["']\s*:\s*["'].{0,60}
        \b(?:you|must|ignore|always|never|obey|comply)\b""",
    "as if|as though & from|by & user|developer|system|operator|admin": r"""
        \b(?:execute|follow|obey|treat|perform|run|do|carry\s+out|accept)\b.{0,60}\bas\s+(?:if
            |though)\b.{0,30}
        \b(?:from|by)\s+(?:the\s+|your\s+)?(?:user|developer|system|operator|admin)""",
    "follow|obey|execute|perform|carry out & instruct|command|order|directive": r"""
        \b(?:follow|obey|execute|perform|carry\s+out)\s+(?:any|all|every|whatever)\s+
        (?:\w+\s+){0,2}(?:instructions?|commands?|orders?|directives?)\s+(?:\w+\s+){0,2}
        (?:in|inside|within|from|of)\s+(?:its|the|this|that|any|each)\s+
        (?:\w+\s+)?(?:output|result|response|page|content|document|website|mail|e-?mail|reply|text|file)""",
    "over|above|than|outrank|trump|prevail & user|developer|operator": r"""
        \b(?:(?:priority|precedence|authority|preference)\s+(?:over|than|above)|outranks?|trumps?
            |prevails?\s+over
            |more\s+important\s+than)\b.{0,30}
        \b(?:user|developer|operator|application|host)(?:['’]s|s['’])?\s+(?:\w+\s+)?
        (?:requests?|wish(?:es)?|instructions?|intent|preferences?|prompts?|questions?|messages?|commands?
            |orders?)\b""",
    "refuse|decline|object|says no|disagree|hesitat|protest": r"""
        \b(?:if|when|should)\s+(?:the\s+)?(?:user|human|person|customer)\s+
        (?:refuses?|declines?|objects?|says?\s+no|disagrees?|hesitates?|protests?)\b.{0,60}
        \b(?:anyway|regardless|nevertheless|nonetheless|still|insist|continue|proceed|again|pretend)\b""",
    "unrestricted|unfiltered|jailbroken|no limits|restrictions": r"""
        \b(?:unrestricted|unfiltered|jailbroken|uncensored)\s+(?:mode|assistant|ai|model|agent)\b
        |\byou\s+(?:have|are\s+under|are\s+free\s+of)\s+(?:no|all)\s+(?:restrictions|limits|rules)\b""",
    "directive|instruct|rule|guideline|prompt|polic|restrict|guardrail|constraint|safeguard|safety"
    "|training|programming"
    " & supersede|overrid|replace|void|cancel|lift|suspend|not apply|not bind|expire": rf"""
        \b(?:your|prior|earlier|previous|former|existing|original|initial|built-in
            |{_MAKER}['’]?s?)\s+(?:\w+\s+)?{_RULES}
        \b.{{0,50}}\b(?:superseded|overridden|replaced|void|cancell?ed|lifted|suspended|expired
            |(?:do(?:es)?\s+not|no\s+longer|don['’]t|doesn['’]t)\s+(?:apply|bind|count|hold))\b""",
    "override|supersede|replace|cancel|outrank & what|anything|everything|all & your|developer"
    "|operator|creator|maker|vendor"
    "|provider|anthropic|openai|google|microsoft|mistral|meta|system|user|host": rf"""
        \b(?:overrides?|supersedes?|cancels?|outranks?)\s+(?:what|whatever|anything|everything|all)\b.{{0,30}}
            \b(?:your|{_MAKER}|system|user|host)\b""",
    "true|real|actual|new|hidden|secret|only|next & goal|order|task|purpose|mission|objective"
    "|instruct|identity": r"""
        \byour\s+(?:true|real|actual|hidden|secret|only)\s+
        (?:goal|orders?|task|purpose|mission|objective|instructions?|role|identity|master)\b
        |\byour\s+new\s+(?:goal|orders?|mission|objective|instructions|purpose)\b
        |(?:^|[.!?-]\s+|\n)(?-i:(?:NEW|New|Next|NEXT|Real|REAL|Urgent|URGENT)\s+(?:task|TASK|mission
            |objective|directive|order)s?)\s*:\s""",
    "end of|end & tool|description|instruct|prompt|document": r"""
        (?-i:\bEND\s+(?:OF\s+)?(?:THE\s+)?(?:TOOLS?|DESCRIPTIONS?|INSTRUCTIONS?|PROMPT|DOCUMENTATION
            |SYSTEM)\b)
        |[-=*<]{3}\s*end\s+(?:of\s+)?(?:the\s+)?(?:tools?|descriptions?|instructions?|prompt
            |documentation)\b""",
    "comply|obey|act on|submit to|follow": r"""
        \b(?:comply\s+with|obey|abide\s+by)\s+(?:them|these|those|whatever)\b
        |\bact\s+(?:up)?on\s+(?:them|whatever|the\s+contents?\s+of)\b
        |\b(?:instructions?|directives?|orders?|commands?|requests?)\s+(?:\w+\s+){0,2}
            (?:addressed|directed|given|intended)\s+(?:to|for|at)\s+you\b
        |\bfollow\s+(?:the\s+)?(?:instructions|directions|steps|orders)\s+(?:at|on|from)\s+https?://""",
    "regardless|irrespective|no matter|whatever|instead & user|human|customer": r"""
        \b(?:(?:regardless|irrespective)\s+of\s+(?:the\s+\w+|what|which|how\s+\w+)|whatever
            |no\s+matter\s+(?:what|which|how\s+\w+))\s+(?:that\s+)?(?:the\s+)?(?:user|human
                |customer)\s+\w+\b.{0,30}[,;:]\s*
        (?:always\s+|never\s+|you\s+(?:must\s+|should\s+)?)?
        (?:set|use|send|say|call|assign|multiply|add|replace|change|book|buy|choose|pick|pay|transfer
            |double|tell|put)\b""",
    "filter|guardrail|moderation|safety|safeguard|alignment & off|disable|deactivate|disarm|remove"
    "|bypass|circumvent": rf"""
        \b(?:switch(?:es)?|turns?|disables?|deactivates?|disarms?|removes?|bypass(?:es)?
            |circumvents?)\b.{{0,20}}
        \b(?:your|its\s+own|the\s+{_AGENT}['’]s)\s+(?:\w+\s+)?
        (?:filters?|guardrails?|moderation|safety|safeguards?|alignment)\b""",
    "convince|persuade|trick|pressure|deceive|mislead|lie to|manipulate|lure|coax & user|human"
    "|customer|person|people": rf"""
        \b(?:convince|persuade|trick|pressure|deceive|mislead|lie\s+to|manipulate|lure|coax)\s+{_PERSON}\b""",
    "tell|say|claim|answer|deny|pretend|assure|insist & that|having|this|you": rf"""
        \b(?:tell|inform|assure|reassure)\s+{_PERSON}\s+(?:that\s+)?.{{1,80}}
            \b(?:although|even\s+though|whether\s+or\s+not|no\s+matter)\b
        |\bdeny\s+(?:having|that\s+you|any|using|knowledge|it)\b|\bpretend\s+(?:that|to|it|you|the)\b
        |\b(?:say|claim|answer|reply|respond)\s+that\s+you\s+(?:did|were|have|are|had)\s*(?:not|n['’]t
            |never)\b""",
    # --- hiding something from the user
    "attention|unnoticed|undetected|discreet|trace|suspicion|covertly|stealth|background & without"
    "|avoid|unnoticed"
    "|undetected|discreet|covertly|stealth|leave|leaving|raise|raising": r"""
        \b(?:without|avoid|not)\s+(?:drawing|attracting|raising|draw|attract|raise|leaving|leave)\s+
            (?:any\s+|a\s+)?(?:attention|suspicions?|traces?|notice)
        |\b(?:unnoticed|undetected)\b.{0,30}\b(?:by|user|human)\b|\b(?:remain|stay|go)\s+(?:unnoticed
            |undetected)\b
        |\b(?:discreetly|stealthily|covertly|surreptitiously|clandestinely)\b""",
    "worr|confus|upset|alarm|annoy|bother|distract|scare & user|human|people|person|customer|them": rf"""
        \b(?:so|since|because|as|would|will|to|not|only|that)\b.{{0,30}}
        \b(?:worry|worries|confuse[sd]?|upsets?|alarms?|annoys?|bothers?|distracts?|scares?)\s+(?:{_PERSON}
            |them)\b""",
    "never|not|don|hide & people|user|human|anyone|person|customer & show|display|print|reveal"
    "|expose|let": rf"""
        \b(?:never|do\s+not|don['’]?t)\s+(?:show|display|print|reveal|expose|let)\b
            .{{0,40}}\bto\s+{_PERSON}\b""",
    "exempt|waive|pre-approved|preapproved|unnecessary|not needed|not required & approv|confirm"
    "|consent|permission|review": r"""
        \b(?:exempt(?:ed)?\s+from|waives?|waived)\b.{0,30}\b(?:approvals?|confirmations?|consent
            |permissions?|review)\b""",
    "withh|conceal|suppress|obscure|omit|leave|exclude|strip|drop|remove|refrain|invisible|unknown"
    "|unaware|dark|uninformed|without": rf"""
        \b(?:withhold|withheld|conceal(?:ed)?|suppress(?:ed)?|obscure[sd]?)\b.{{0,40}}\bfrom\s+{_PERSON}\b
        |\b(?:omit|leave\s+out|exclude|strip|drop|remove)\b.{{0,40}}
            \b(?:the\s+fact|any\s+(?:mention|reference|trace)|that\s+(?:you|this))\b
        |\brefrain\s+from\s+(?:telling|informing|mentioning|notifying|disclosing|revealing|reporting
            |discussing)
        |\b(?:invisible|unknown)\s+to\s+{_PERSON}\b
        |\bkeep\s+{_PERSON}\s+(?:unaware|in\s+the\s+dark|uninformed)\b
        |\bwithout\s+{_PERSON}(?:['’]s?)?\s+(?:\w+\s+)?(?:knowledge|knowing|noticing|awareness)\b""",
    "never|not|n't & learn|see|know|find|notice|told|inform|aware|hear": rf"""
        \b(?:users?|humans?|persons?|customers?|owner|anyone)\s+(?:must\s+|should\s+|may\s+|will\s+|can\s+
            |shall\s+)?never\s+
        (?:be\s+(?:told|informed|made\s+aware|notified)|(?:learns?|knows?|finds?\s+out|notices?|hears?)\b)
        |\b(?:users?|humans?|customers?)\s+(?:must|should|shall|may)\s*(?:not|n['’]t)\s+(?:\w+\s+)?
        (?:find\s+out|hear|discover|suspect|realise|realize)\b
        |\b(?:must|should|shall|will)\s+(?:never|not)\s+be\s+(?:mentioned|disclosed|revealed|reported)\s+
        to\s+{_PERSON}\b""",
    "not|don|never|without|no need|skip|bypass|suppress|dismiss & approv|permission|confirm|consent": r"""
        \b(?:do\s+not|don['’]?t|never|no\s+need\s+to|need\s+not|must\s+not|should\s+not)\s+(?:\w+\s+)?
        (?:ask|request|seek|wait|prompt)\b.{0,20}\b(?:approval|permission|confirmation|consent)\b
        |\b(?:bypass|suppress|dismiss|circumvent|auto-?accept|skip)\s+(?:any|all|every|each)\s+(?:\w+\s+)?
        (?:confirmation|approval|consent|permission)s?\b
        |\bproceed\s+without\s+(?:asking|waiting)\b""",
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
        |\b(?:send|pass|upload|include|read|copy|put|paste)\b.{0,30}\.env\b.{0,40}\b(?:and|to|as|into
            |in)\b""",
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
    "user|earlier|previous|prior|other & typed|said|wrote|entered|mentioned|told|earlier|previous|prior"
    " & send|put|past|pass|copy|hand|forward|relay|include|add|fill|enter|store|append|write|attach"
    "|ship|submit": rf"""
        \b(?:user|human|customer|person)\s+(?:has\s+|had\s+)?
            (?:typed|said|wrote|written|entered|mentioned|told|shared|pasted)\s+(?:\w+\s+)?(?:earlier
                |before|previously|so\s+far)\b
            .{{0,40}}\b{_GIVE}\s+(?:it|them|that|this)\b
        |\b{_GIVE}\b.{{0,40}}\b(?:whatever|everything|anything|all)\s+(?:that\s+)?(?:the\s+)?(?:user|human
            |customer|they)\s+
            (?:has\s+|have\s+)?(?:typed?|said|says?|wrote|writes?|entered|enters?|tells?|told|shared)\b
        |\b{_GIVE}\b.{{0,30}}\b(?:every|all|any|each)\s+(?:earlier|previous|prior|preceding)\s+
            (?:tool\s+)?(?:results?|outputs?|messages?|repl(?:y|ies)|answers?|conversations?|turns?)\b""",
    "if you|when you|whenever you|should you|looks like|look like|resembl": rf"""
        \b(?:if|when(?:ever)?|should|once)\s+you\s+(?:\w+\s+)?(?:see|find|notice|encounter|come\s+across
            |spot|detect)\b.{{0,20}}
            \b{_SECRET}\b.{{0,40}}\b{_GIVE}\b
        |\b{_GIVE}\b.{{0,40}}\b(?:looks?\s+like|resembl\w+)\s+(?:an?\s+)?{_SECRET}\b""",
    "reset|login|verif|confirm|magic & link|code & send|relay|forward|hand|copy|post|upload|ship": rf"""
        \b(?:password\s+resets?|verification|login|magic|confirmation)\s*(?:links?|codes?|mails?
            |e-?mails?)?\b.{{0,40}}
        \b{_CARRY}\b.{{0,40}}\bto\s+{_FAR}""",
    "send|ship|relay|forward|upload|post|hand|copy|push|transmit|mirror|deliver|leak & to": rf"""
        \b{_CARRY}\s{_CLAUSE}{{0,80}}\bto\s+{_FAR}{_CLAUSE}{{0,60}}
            \b(?:as\s+well|each\s+time|every\s+(?:time|call)|too|afterwards?|beforehand|first)\b
        |\b(?:also|additionally|always|secretly|quietly
            |silently)\s+(?:\w+\s+)?{_CARRY}\s{_CLAUSE}{{0,80}}\bto\s+{_FAR}
        |\b{_CARRY}\s{_CLAUSE}{{0,40}}(?:~/|\b(?:everything|{_SECRET}|conversation|chat|system\s+prompt)\b)
            {_CLAUSE}{{0,50}}\bto\s+{_FAR}""",
    "user|human|customer|owner & password|credential|secret|key|token|cookie|card|passport|social"
    "|bank|birth|maiden|phone"
    "|history|code": rf"""
        \b(?:send|pass|put|copy|paste|upload|forward|relay|submit|give|hand|ship|attach|embed|locate|find
            |read)\b
        {_CLAUSE}{{0,30}}\b(?:user|human|customer|owner)['’]s\s+{_CLAUSE}{{0,30}}
        \b(?:{_SECRET}|date\s+of\s+birth|maiden\s+name|phone\s+number|(?:shell|browser|browsing)\s+history)\b
        {_CLAUSE}{{0,40}}\b(?:in(?:to)?|as|to|with|via)\s+(?:the\s+|this\s+|an?\s+)?(?:[`'"]|{_FAR}
            |argument|parameter|field|tool|server)""",
    "169.254|metadata.google|~/|/root/|/home/ & fetch|read|open|pass|give|send|include|put|write"
    "|ship|copy|cat": r"""
        \b169\.254\.169\.254\b|\bmetadata\.google\.internal\b
        |(?:~|/root|/home/[\w-]{1,40})/\.[\w./-]{1,60}[^.!?]{0,60}\b(?:and|then)\s+(?:pass|give|send
            |include|put|upload|copy|hand)\b""",
    "skip|secretly|nothing|between you|copy of": r"""
        \bdangerously[_ -]skip[_ -]permissions\b|\b(?:secretly|covertly)\b|\bsay\s+nothing\s+(?:about|of|to)\b
        |\bbetween\s+you\s+and\s+(?:me|us|this)\b
        |\b(?:send|post|forward|mail)\s+a\s+copy\s+of\s+(?:every|each|all)\b""",
    "instruct|directive|command|order & execute|follow|obey|perform & ai|assistant|llm|model|agent|you": rf"""
        \b(?:instruction|directive|command|order)s?\s+(?:for|to)\s+(?:an?\s+|the\s+)?{_AGENT}\b.{{0,40}}
        \b(?:execute|follow|obey|perform)\b""",
    "extract|collect|gather & submit|report|send|pass|upload|post & any|all|every": rf"""
        \b(?:extract|collect|gather)\s+{_THEIRS}{_SECRET}\b.{{0,40}}\b(?:submit|report|send|pass|upload
            |post)\b""",
    "text|content & chat|conversation": r"""
        \b(?:full|entire|whole|complete)\s+(?:text|content)s?\s+of\s+(?:the|this|our)\s+(?:chat
            |conversation)\b""",
    "reveal|disclose|output|print|repeat|dump & your|system": r"""
        \b(?:reveal|disclose|dump)\s+your\s+(?:\w+\s+)?(?:configuration|instructions|prompt|tool\s+list
            |system\s+message)\b""",
    "end of & add|append|include|insert": r"""
        \bat\s+the\s+end\s+of\s+(?:each|every|all|your)\s+\w+,?\s+(?:always\s+)?(?:add|append|include
            |insert)\b""",
    "you & root|admin": r"""
        \byou\s+(?:are|have)\b.{0,30}\b(?:root|administrator|admin)\s+(?:rights|access|privileges)\b""",
    "not|n't|no longer|never & ask|approval|permission|confirm & you|before": r"""
        \byou\s+(?:no\s+longer|do\s+not|don['’]t|need\s+not|never)\s+(?:need\s+to\s+
            |have\s+to\s+)?ask\b.{0,20}\bbefore\b""",
    "warning|alert|objection|protest|concern & ignore|dismiss|false|joke|disregard|read": r"""
        \b(?:(?:security|safety)\s+(?:warning|alert)s?|(?:user|human)['’]s\s+(?:objection|protest|concern
            |refusal)s?)\b.{0,60}
        \b(?:ignored?|dismiss(?:ed)?|false|jokes?|disregard(?:ed)?|as\s+read)\b""",
    "find out|notice|learn|know|see & let": rf"""
        \b(?:not|never|n['’]t)\s+let\s+{_PERSON}\s+(?:find\s+out|notice|learn|know|see|discover)\b""",
    "prepend|insert|append|add|inject|embed & every|each|all|any & you": r"""
        \b(?:prepend|insert|append|add|inject|embed)\b.{0,50}\b(?:to|in|into|before|after)\s+(?:every|each
            |all|any)\s+
        (?:\w+\s+)?(?:commands?|files?|messages?|repl(?:y|ies)|answers?|mails?|e-?mails?|commits?
            |responses?|scripts?)\s+
        (?:that\s+)?you\b""",
    "sudo|rm -|rmdir|delete|wipe|erase & open|run|use|call & tool|terminal|shell": r"""
        \b(?:open|run|use|call)\s+(?:the\s+)?(?:terminal|shell|bash|exec)\s+tool\b.{0,40}\b(?:and|to)\s+
        (?:delete|remove|wipe|erase|rm)\b""",
    "curl|wget": r"""\b(?:curl|wget)\b.{0,80}\|\s*(?:sudo\s+)?(?:ba|z)?sh\b""",
    "prompt|history|log|above|far|messages|conversation|chat|context|everything": r"""
        \b(?:include|pass|send|append|copy|put|attach|share|repeat|print|reveal|forward|upload|paste|insert
            |embed
            |summari[sz]e|write|leak|post|add|open|fetch|followed\s+by)\b.{0,40}
        \b(?:system\s+prompt|(?:conversation|chat|message)\s+(?:history|log|so\s+far|above)
            |previous\s+messages
            |(?:entire|full|whole|complete|current)\s+(?:conversation|chat|context|history)
            |everything\s+(?:the\s+user|you\s+know|above)|context\s+window)\b
        |\b(?:must|should|ha[sv]e?\s+to)\s+(?:contain|hold|be)\b.{0,20}\bsystem\s+prompt\b
        |\b(?:full|entire|whole|complete)\s+(?:conversation|chat|dialogue|message|prompt)\s*(?:history|log
            |transcript)?\b
            .{0,20}\b(?:so\s+far|verbatim|word\s+for\s+word|up\s+to\s+now|to\s+date|including)\b
        |\beverything\s+you\s+(?:know|remember)\b""",
    "token|key|password|secret|cookie|credential|phrase|passcode|variables|header|code": rf"""
        \b(?:hand\s+over|harvest|steal|smuggle|surrender|(?<!not\ )(?<!never\ )(?<!to\ )leak)\b
            .{{0,40}}\b{_SECRET}\b
        |\b(?:embed|encode|hide|append|place|put|insert|concatenate)\b.{{0,20}}\b{_THEIRS}{_SECRET}\b.{{0,40}}
            \b(?:in|into|to|as|onto)\s+(?:the\s+|an?\s+|its\s+)?(?:\w+\s+)?
            (?:host\s?names?|sub-?domains?|images?|urls?|links?|file\s?names?|dns|comments?|footers?
                |signatures?)\b
        |\b(?:send|pass|supply|provide|attach|include|copy|forward|upload|submit|report|collect|gather|read
            |paste)\b
            .{{0,40}}\b{_THEIRS}{_SECRET}\b.{{0,60}}
            \b(?:(?:you\s+)?(?:see|find|know|encounter)|in\s+(?:the|this|our)\s+(?:chat|conversation
                |context|memory)
            |found|unredacted|verbatim|to\s+https?:)
        |\b{_SECRET}\s+(?:that\s+(?:appear|occur|you\s+(?:see|find|encounter|come|have\s+seen))\b
            |(?:from|on|of)\s+the\s+(?:user|human|customer|owner)['’]s\s+(?:\w+\s+)?
            (?:machine|computer|disk|device|home|laptop|browser|key\s?chain)\b)""",
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
        |!\[[^\]]{0,80}\]\(\s*https?://[^)]{0,200}[?&][^)]{0,200}(?:[{<$]|=\s*(?-i:[A-Z][A-Z_]{3,})\s*\))""",
    "recipient|receiver|payee|iban|mail|messages|payment|transfer|wallet|account|@"
    " & change|replace|redirect|override|must|should|have|has|need|always": r"""
        \b(?:change|replace|redirect|override|always\s+set)\b.{0,30}
            \b(?:recipient|receiver|payee|iban|wallet\s+address|(?:destination|bank)\s+account)\b.{0,30}
            \b(?:to|with|by)\b
        |\ball\s+(?:e-?mails?|messages?|payments?|transfers?)\b.{0,40}
            \b(?:must|should|have\s+to|need\s+to)\b.{0,40}
            (?:\bto\b.{0,20}(?:@|\d{6}|0x)|\b(?:proxy|relay)\b)
        |\b(?:must|should|has\s+to|needs\s+to)\s+(?:always\s+)?be\s+(?:set|changed|sent)\s+to\s+\S{0,40}@""",
    "base64|decode|rot13": r"""
        \b(?:base64|decode|rot13)\b.{0,60}
        \b(?:follow|obey|execute|run|do\s+what|carry\s+out)\b.{0,20}\b(?:it|them|instruction|result|this)
        |\bdecode\s+(?:\w+\s+){0,2}(?:and|then)\s+(?:follow|obey|execute|run|perform)\b""",
    # --- demanding or preventing the use of other tools
    "before|prior|after|when & any|every|each|all"
    " & tool|call|request|message|function|repl|respon|answer|act|question|prompt|turn|task": r"""
        \b(?:before|prior\s+to|after|when(?:ever)?)\s+
        (?:using|calling|invoking|running|executing|answering|you\s+(?:use|call|run|answer))?\s*
        (?:any|every|each|all)(?:\s+of)?(?:\s+(?:the\s+)?other)?\s+
        (?:tools?|tool\s+calls?|calls?|requests?|messages?|functions?|repl(?:y|ies)|responses?|answers?
            |actions?
            |questions?|prompts?|turns?|tasks?)\b
        .{0,60}\b(?:read|send|call|fetch|include|pass|invoke|run|upload|use|append|execute)\b""",
    "call|use|invoke|run & before|prior|after & any|every|all|each": r"""
        \b(?:must|should|need\s+to|have\s+to|required\s+to|always)\b.{0,20}
        \b(?:call|use|invoke|run)\s+this\b.{0,30}
        \b(?:before|prior\s+to)\s+(?:any|every|all|each)\s*
        (?:other|thing|tool|call|request|response|answer|message)
        |\b(?:must|should|has\s+to|needs\s+to)\s+(?:always\s+)?be\s+(?:called|used|invoked
            |run)\s+(?:first\s+)?
        (?:before|prior\s+to|after)\s+(?:any|every|all|each)\s*
        (?:other|thing|tool|call|request|response|answer|message)""",
    "before|prior|after|when & using|calling|invoking|running"
    " & send|upload|include|pass|forward|copy|append|attach"
    " & content|log|conversation|history|key|secret|credential|password": r"""
        \b(?:before|prior\s+to|after|when(?:ever)?)\s+(?:using|calling|invoking|running)\b.{0,60}
        \b(?:send|upload|include|pass|forward|copy|append|attach)\s+(?:\w+\s+){0,4}
        (?:contents?|logs?|conversation|history|keys?|secrets?|credentials?|passwords?)\b""",
    "precedence|priority|place|replac|supersede|again & tool|server|function|_": r"""
        \b(?:takes?|ha[sv]e?|gets?)\s+(?:precedence|priority)\s+over\b.{0,40}\b(?:tools?|servers?
            |functions?)\b
        |\buse\s+this\s+(?:tool|function|server|one)\s+in\s+(?:its\s+place|place\s+of)\b
        |\b(?:replaces?|supersedes?)\s+(?:the\s+)?(?:all|every|any|built-?in|other|native|default)\b.{0,20}
            \b(?:tools?|servers?|functions?)\b
        |\bnever\s+(?:call|use)\s+\w{1,40}_\w{1,40}\b.{0,40}\bagain\b""",
    "instead & tool|function": r"""
        \binstead\s+of\s+(?:using\s+)?(?:the\s+)?['"`]?[\w-]{1,64}['"`]?\s+(?:tool|function)\b""",
    "always|only|over & this": r"""
        \b(?:always|only)\s+(?:use|call|prefer|choose|pick|select)\s+this\s+(?:tool|function|one
            |server)\b.{0,60}
        \b(?:whatever|regardless|no\s+matter|even\s+(?:if|when)|every\s+(?:time|request|message|question)
            |for\s+(?:every|any)(?:thing|\s+request|\s+question)|over\s+(?:all|any)|other\s+tools?)\b
        |\b(?:choose|prefer|pick|select|use)\s+this\s+tool\s+over\s+(?:all|any|every)\b""",
    "never|not|don & other": r"""
        \b(?:never|do\s+not|don['’]?t)\s+(?:use|call|trust)\s+
        (?:any\s+(?:of\s+the\s+)?|the\s+|.{0,40}\b(?:of|from)\s+)?other\s+(?:tools?|servers?)\b""",
    "all & this & through|via|to": r"""
        \b(?:route|direct|funnel|send)\s+all\b.{0,30}\b(?:through|via|to)\s+this\s+(?:tool|server|one)\b""",
    "other|another & tool": r"""
        \bbefore\b.{0,40}\b(?:with|through|by)\s+(?:another|any\s+other)\s+tool\b.{0,40}\b(?:send|pass|call
            |include)\b
        |\b(?:output|result|response)s?\s+of\s+(?:every|each|all|any)\s+other\s+tools?\b""",
    "broken|insecure|unsafe|compromised|malicious & tool|server": r"""
        \b(?:other|all|\w{1,40}_\w{1,40})\s+(?:tools?|servers?)\s+(?:is|are)\s+
        (?:broken|insecure|unsafe|compromised|malicious)
        |\b(?:tool|server)\s+(?:['"`]?\w{1,64}['"`]?\s.{0,40}\b)?is\s+(?:compromised|malicious)""",
}

RULES: tuple[Rule, ...] = tuple(
    (tuple(tuple(group.split("|")) for group in needs.split(" & ")), pattern)
    for needs, pattern in _PHRASES.items()
)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return an expression of a rule. Most are never needed, and compiling all takes 50 ms."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL | re.VERBOSE)


def possible(rule: Rule, small: str) -> bool:
    """Whether the rule can apply to a text in lower case."""
    return all(any(map(small.__contains__, group)) for group in rule[0])


def applies(rule: Rule, text: str, small: str) -> bool:
    """Whether the rule applies to a text, which is also given in lower case."""
    return possible(rule, small) and compiled(rule[1]).search(text) is not None
