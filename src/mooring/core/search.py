"""Find tools by what they are for.

Scores are BM25-like. A term counts more the rarer it is among the tools (`inverted`) and the more
prominent it is in the tool (`documents`); what the words of a query are worth is said by `words`. A
tool also gets a share of what its group scores, so that a question about a field lifts the servers
that work in it. Ties go by name: the same catalog gives the same answer, however it came about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from heapq import nlargest
from typing import Protocol

from mooring.core.catalog import Catalog
from mooring.core.documents import FULL, GROUP, TOOL, group_texts, tool_texts, weigh
from mooring.core.inverted import UNIT, Inverted
from mooring.core.pin import Lock
from mooring.core.types import Group, Tool
from mooring.core.values import Value, field
from mooring.core.words import query_weights, terms_of

__all__ = ["Hit", "Index", "Ranker"]

_LONGEST_QUERY = 2_000
_GROUP_SHARE = 0.65
_EXACT = 1_000 * UNIT * FULL
"""Added for the very name of a tool: more than any words can bring."""
_FEW = 50
"""With fewer tools found than that, all those of the best fitting groups are shown after them."""
_FITTING = 3
_POOL = 50
"""How far down two orders are looked at to fuse them."""
_DAMPING = 60


class Ranker(Protocol):
    """Another opinion about which tools fit a query, such as one by meaning."""

    def rank(self, query: str, names: Sequence[str]) -> Sequence[tuple[str, float]]:
        """Return some of the names with scores, the best first."""
        ...


class Hit(Value):
    """A tool that was found, and how well it fits."""

    name: str
    score: float
    tool: Tool = field(shown=False, compare=False)
    group: Group | None = field(shown=False, compare=False)
    terms: frozenset[str] = field(shown=False, compare=False)
    """Those of the query."""

    @property
    def why(self) -> tuple[str, ...]:
        """The words that matched, by field, such as `name: read, file`. Worked out when asked for."""
        fields, texts = [*TOOL], tool_texts(self.tool)
        if self.group:
            fields, texts = [*fields, *GROUP], texts + group_texts(self.group)
        said: list[str] = []
        for one, text in zip(fields, texts, strict=True):
            words = dict.fromkeys(word for word in text if not self.terms.isdisjoint(terms_of(word)))
            if words:
                said.append(f"{one}: {', '.join(list(words)[:8])}")
        return tuple(said)


class Index:
    """The search index of one catalog. Immutable: `updated` makes the next, at the price of what changed."""

    def __init__(
        self, known: Mapping[str, Tool], groups: Iterable[Group], tools: dict[int, Tool], words: Inverted
    ) -> None:
        self._known = known
        self._groups = tuple(groups)
        self._tools = tools
        """By number; that of a tool that is gone is nobody's."""
        self._words = words
        self._group_words = Inverted(weigh(GROUP, group_texts(group)) for group in self._groups)

    @classmethod
    def build(cls, tools: Mapping[str, Tool], groups: Iterable[Group] = ()) -> Index:
        """Return the index of these tools, by local name, and their groups."""
        listed = dict(enumerate(tools.values()))
        return cls(tools, groups, listed, Inverted(weigh(TOOL, tool_texts(tool)) for tool in listed.values()))

    @classmethod
    def of(cls, catalog: Catalog, lock: Lock | None) -> Index:
        """Return the index of a catalog; tools of which a lock has the words are not read again."""
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
        """Return the index of another catalog. Tools that are the very same objects are not read again."""
        known, wanted = self._known, catalog.tools
        if self._words.removed > len(wanted):
            return Index.build(wanted, catalog.groups)
        kept = {number: tool for number, tool in self._tools.items() if wanted.get(tool.name) is tool}
        added = [tool for name, tool in wanted.items() if known.get(name) is not tool]
        return self._joined(catalog, kept, added, self._words)

    @classmethod
    def _joined(cls, catalog: Catalog, kept: dict[int, Tool], added: list[Tool], words: Inverted) -> Index:
        """Return the index of the tools that are in `words` by number, and of others."""
        removed = [number for number in range(words.count) if number not in kept]
        changed = words.changed(removed, (weigh(TOOL, tool_texts(tool)) for tool in added))
        numbered = dict(enumerate(added, words.count))
        return cls(catalog.tools, catalog.groups, kept | numbered, changed)

    def search(self, query: str, limit: int = 10, *, ranker: Ranker | None = None) -> list[Hit]:
        """Return the tools that fit a query, the best first; the very name of a tool always wins.

        With a `ranker`, its order and that of the words are fused by reciprocal rank, unless the query
        is a name.
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
        """Return the scores with a share of what the group of each tool scores."""
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
        """Return the tool of this local name, or those that their servers call so."""
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
        """Return the best of two orders: what is high in either comes first, what is in both wins."""
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
            remote.setdefault(tool.remote_name.lower(), []).append(self._numbers[name])
        return remote

    @cached_property
    def _homes(self) -> dict[int, int]:
        """The place of each tool's group, by number of tool: its server's group, or else a declared one."""
        homes = dict.fromkeys(self._tools, -1)
        order = sorted(enumerate(self._groups), key=lambda item: item[1].id.startswith("mcp:"))
        for place, group in order:
            for member in group.members:
                number = self._numbers.get(member)
                if number is not None:
                    homes[number] = place
        return homes


def _reads_as(pinned: Tool, tool: Tool) -> bool:
    """Whether a tool under its local name has the words of what was pinned."""
    return (
        tool.input_schema is pinned.input_schema
        and tool.description == pinned.description
        and tool.title == pinned.title
    )
