"""Search for tools by their purpose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from heapq import nlargest
from itertools import chain
from types import MappingProxyType
from typing import Any, Protocol, cast

from mooring.core.catalog import Catalog
from mooring.core.search_index import UNIT, InvertedIndex, query_weights, runs, terms_of
from mooring.core.types import EMPTY, Group, Tool
from mooring.core.value import Value, field

RULES = 1
"""Version of the weights. Increase it when weights change, because indexes are cached."""

Texts = tuple[list[str], ...]
"""The words of each field."""

FULL = 255
"""Highest weight of a term. Integers, so that sums do not depend on order."""

_LONGEST_TEXT = 4_000
_LONGEST_NAME = 100
_LEAD_WORDS = 22
"""Words of a description with full weight; the rest counts half."""
_MOST_PARAMETERS = 80
_MOST_CHOICES = 8
_SATURATION = 0.9
_STEP = 256
_MOST = 5 * _STEP
"""Upper limit of a sum: repeating a word has no further effect."""
_WEIGHTS = bytes(int(FULL * total / (total + _SATURATION * _STEP)) or 1 for total in range(_MOST))
"""The weight of a term for each sum of shares."""


Fields = Mapping[str, tuple[float, int]]
"""Kinds of text: weight, and the usual number of words; longer texts weigh less per word."""

TOOL: Fields = {
    "name": (3.6, 3),
    "title": (1.5, 3),
    "description": (1.0, 15),
    "details": (0.5, 40),
    "parameters": (0.8, 5),
    "parameter descriptions": (0.5, 25),
}
GROUP: Fields = {
    "server": (1.7, 2),
    "server title": (1.0, 3),
    "server description": (1.0, 25),
    "server instructions": (0.5, 60),
}


def weigh(fields: Fields, texts: Texts) -> dict[str, int]:
    """Return the weight of each term, from 1 to `FULL`: the sum over the fields, saturated."""
    sums: dict[str, int] = {}
    known = sums.get
    for (weight, usual), words in zip(fields.values(), texts, strict=True):
        if words:
            share = int(_STEP * weight / (0.7 + 0.3 * len(words) / usual))
            for term in chain.from_iterable(map(terms_of, words)):
                sums[term] = known(term, 0) + share
    return {term: _WEIGHTS[total] if total < _MOST else _WEIGHTS[-1] for term, total in sums.items()}


def tool_texts(tool: Tool) -> Texts:
    """Return the words of a tool, by the fields of `TOOL`."""
    description = runs(tool.description[:_LONGEST_TEXT])
    names, texts = _parameters(tool.input_schema)
    return (
        runs(tool.own_name[:_LONGEST_NAME]),
        runs(tool.title[:_LONGEST_NAME]) if tool.title else [],
        description[:_LEAD_WORDS],
        description[_LEAD_WORDS:],
        runs(" ".join(names)),
        runs(" ".join(texts)[:_LONGEST_TEXT]),
    )


def group_texts(group: Group) -> Texts:
    """Return the words of a group, by the fields of `GROUP`."""
    name = runs(group.id[:_LONGEST_NAME].removeprefix("mcp:"))
    return (
        name,
        [word for word in runs(group.title[:_LONGEST_NAME]) if word not in name],
        runs(group.description[:_LONGEST_TEXT]),
        runs((group.instructions or "")[:_LONGEST_TEXT]),
    )


def _parameters(schema: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of the parameters, including nested ones, and their descriptions."""
    names: list[str] = []
    texts: list[str] = []
    pending = [_mapping(schema)]
    for node in pending:  # grows with nested objects, up to the limit
        for name, value in _mapping(node.get("properties")).items():
            if len(names) == _MOST_PARAMETERS:
                return names, texts
            names.append(str(name)[:_LONGEST_NAME])
            parameter = _mapping(value)
            description: Any = parameter.get("description")
            if isinstance(description, str):
                texts.append(description[:_LONGEST_TEXT])
            if "enum" in parameter:
                texts += _choices(parameter["enum"])
            if "properties" in parameter:
                pending.append(parameter)
            if "items" in parameter:
                pending.append(_mapping(parameter["items"]))
    return names, texts


def _choices(value: Any) -> list[str]:
    choices = cast("list[Any]", value)[:_MOST_CHOICES] if isinstance(value, list) else []
    return [choice[:_LONGEST_NAME] for choice in choices if isinstance(choice, str)]


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, (dict, MappingProxyType)) else EMPTY


_LONGEST_QUERY = 2_000
_GROUP_SHARE = 0.65
_EXACT = 1_000 * UNIT * FULL
"""Added for the exact name of a tool: more than any words."""
_FEW = 50
"""With fewer hits, the tools of the best groups are added."""
_FITTING = 3
_POOL = 50
"""Entries of two rankings that are fused."""
_DAMPING = 60


class Ranker(Protocol):
    """A second ranking of tools, such as semantic search."""

    def rank(self, query: str, names: Sequence[str]) -> Sequence[tuple[str, float]]:
        """Return some of the names with scores, the best first."""
        ...


class Hit(Value):
    """A search result."""

    name: str
    score: float
    tool: Tool = field(shown=False, compare=False)
    group: Group | None = field(shown=False, compare=False)
    terms: frozenset[str] = field(shown=False, compare=False)
    """Terms of the query."""

    @property
    def why(self) -> tuple[str, ...]:
        """The words that matched, by field, such as `name: read, file`. Computed on first use."""
        fields, texts = [*TOOL], tool_texts(self.tool)
        if self.group:
            fields, texts = [*fields, *GROUP], texts + group_texts(self.group)
        said: list[str] = []
        for one, text in zip(fields, texts, strict=True):
            words = dict.fromkeys(word for word in text if not self.terms.isdisjoint(terms_of(word)))
            if words:
                said.append(f"{one}: {', '.join(list(words)[:8])}")
        return tuple(said)


class IndexedTools(Protocol):
    """Tools with a search index, such as a cached lock."""

    @property
    def tools(self) -> Iterable[Tool]: ...
    @property
    def words(self) -> InvertedIndex | None: ...


class Index:
    """The search index of one catalog. Immutable: `updated` returns a new one, reading only changes."""

    def __init__(
        self, known: Mapping[str, Tool], groups: Iterable[Group], tools: dict[int, Tool], words: InvertedIndex
    ) -> None:
        self._known = known
        self._groups = tuple(groups)
        self._tools = tools
        """By number; numbers of removed tools are not reused."""
        self._words = words
        self._group_words = InvertedIndex(weigh(GROUP, group_texts(group)) for group in self._groups)

    @classmethod
    def build(cls, tools: Mapping[str, Tool], groups: Iterable[Group] = ()) -> Index:
        """Return the index of these tools, by local name, and their groups."""
        listed = dict(enumerate(tools.values()))
        return cls(
            tools, groups, listed, InvertedIndex(weigh(TOOL, tool_texts(tool)) for tool in listed.values())
        )

    @classmethod
    def of(cls, catalog: Catalog, lock: IndexedTools | None) -> Index:
        """Return the index of a catalog; tools that are indexed in the lock are not read again."""
        if lock is None or lock.words is None:
            return cls.build(catalog.tools, catalog.groups)
        pinned = {(tool.server, tool.remote_name): (number, tool) for number, tool in enumerate(lock.tools)}
        kept: dict[int, Tool] = {}
        added: list[Tool] = []
        for tool in catalog.tools.values():
            number, same = pinned.get((tool.server, tool.remote_name), (-1, None))
            if same is not None and _reads_as(same, tool):
                kept[number] = tool
            else:
                added.append(tool)
        if len(added) > len(kept):
            return cls.build(catalog.tools, catalog.groups)
        return cls._joined(catalog, kept, added, lock.words)

    def updated(self, catalog: Catalog) -> Index:
        """Return the index of another catalog. Identical objects are not read again."""
        known, wanted = self._known, catalog.tools
        if self._words.removed > len(wanted):
            return Index.build(wanted, catalog.groups)
        kept = {number: tool for number, tool in self._tools.items() if wanted.get(tool.name) is tool}
        added = [tool for name, tool in wanted.items() if known.get(name) is not tool]
        return self._joined(catalog, kept, added, self._words)

    @classmethod
    def _joined(
        cls, catalog: Catalog, kept: dict[int, Tool], added: list[Tool], words: InvertedIndex
    ) -> Index:
        """Return the index of the tools in `words` and of added ones."""
        removed = [number for number in range(words.count) if number not in kept]
        changed = words.changed(removed, (weigh(TOOL, tool_texts(tool)) for tool in added))
        numbered = dict(enumerate(added, words.count))
        return cls(catalog.tools, catalog.groups, kept | numbered, changed)

    def __len__(self) -> int:
        """The number of tools."""
        return len(self._known)

    def search(self, query: str, limit: int = 10, *, ranker: Ranker | None = None) -> list[Hit]:
        """Return the tools that fit a query, the best first. An exact name always wins.

        With a `ranker`, both rankings are fused by reciprocal rank, unless the query is a name.
        """
        text = query[:_LONGEST_QUERY].strip()
        weights = query_weights(text)
        scores = self._with_groups(self._words.scores(weights), weights)
        named = self._named(text)
        for number in named:
            scores[number] = scores.get(number, 0) + _EXACT
        terms = frozenset(weights)
        if ranker is None or named:
            best = [(number, scores[number] / (UNIT * FULL)) for number in self._best(scores, limit)]
        else:
            best = self._fused(self._best(scores, _POOL), ranker.rank(text, list(self._known)), limit)
        return [self._hit(number, score, terms) for number, score in best]

    def _with_groups(self, scores: dict[int, int], weights: Mapping[str, float]) -> dict[int, int]:
        """Return the scores plus a share of the score of each tool's group."""
        about = self._group_words.scores(weights) if len(self._groups) > 1 else {}
        if not about:
            return scores
        shares = {place: round(_GROUP_SHARE * score) for place, score in about.items()}
        if len(scores) < _FEW:
            for place in sorted(shares, key=lambda place: (-shares[place], place))[:_FITTING]:
                for member in self._groups[place].members[:_FEW]:
                    if member in self._numbers:
                        scores.setdefault(self._numbers[member], 0)
        homes = self._homes
        return {number: score + shares.get(homes[number], 0) for number, score in scores.items()}

    def _named(self, text: str) -> list[int]:
        """Return the numbers of the tools with this local name or remote name."""
        if text in self._numbers:
            return [self._numbers[text]]
        return [] if " " in text else self._remote.get(text.lower(), [])

    def _best(self, scores: Mapping[int, int], limit: int) -> list[int]:
        """Return the numbers of the best tools, ties in order of name."""
        if not scores or limit < 1:
            return []
        least = nlargest(limit, scores.values())[-1]
        shown = [number for number, score in scores.items() if score >= least]
        shown.sort(key=lambda number: (-scores[number], self._tools[number].name))
        return shown[:limit]

    def _fused(
        self, lexical: list[int], ranked: Sequence[tuple[str, float]], limit: int
    ) -> list[tuple[int, float]]:
        """Fuse two rankings by reciprocal rank."""
        sums: dict[int, float] = {}
        other = [self._numbers[name] for name, _ in ranked[:_POOL] if name in self._numbers]
        for order in (lexical, other):
            for rank, number in enumerate(order):
                sums[number] = sums.get(number, 0.0) + 1 / (_DAMPING + rank)
        return sorted(sums.items(), key=lambda item: (-item[1], self._tools[item[0]].name))[:limit]

    def _hit(self, number: int, score: float, terms: frozenset[str]) -> Hit:
        tool, home = self._tools[number], self._homes[number]
        group = self._groups[home] if home >= 0 else None
        return Hit(name=tool.name, score=round(score, 4), tool=tool, group=group, terms=terms)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Numbers of the tools by local name."""
        return {tool.name: number for number, tool in self._tools.items()}

    @cached_property
    def _remote(self) -> dict[str, list[int]]:
        remote: dict[str, list[int]] = {}
        for name, tool in self._known.items():
            remote.setdefault(tool.own_name.lower(), []).append(self._numbers[name])
        return remote

    @cached_property
    def _homes(self) -> dict[int, int]:
        """Index of each tool's group: that of its server, or a declared one."""
        homes = dict.fromkeys(self._tools, -1)
        order = sorted(enumerate(self._groups), key=lambda item: item[1].id.startswith("mcp:"))
        for place, group in order:
            for member in group.members:
                number = self._numbers.get(member)
                if number is not None:
                    homes[number] = place
        return homes


def _reads_as(pinned: Tool, tool: Tool) -> bool:
    """Whether a tool has the same search words as the pinned one."""
    return (
        tool.shape is None
        and tool.input_schema is pinned.input_schema
        and tool.description == pinned.description
        and tool.title == pinned.title
    )
