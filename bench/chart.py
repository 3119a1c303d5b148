"""The results as an SVG: small multiples of bars, each a time relative to that of the raw SDK."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from bench.entries import OURS

PANELS = {
    "echo-stdio": "p50",
    "echo-http": "p50",
    "flood-stdio": "rate",
    "flood-http": "rate",
    "large-stdio": "p50",
    "large-http": "p50",
    "connect-stdio": "wall",
    "connect-http": "wall",
    "catalog": "wall",
    "cold-start": "wall",
}
"""Which metric stands for a scenario."""

WIDTH, MARGIN, GAP = 920, 24, 32
HEAD, FOOT = 88, 44
TITLE, PITCH, BAR = 30, 19, 11
LABELS, VALUES = 148, 46
COLUMN = (WIDTH - 2 * MARGIN - GAP) // 2
TRACK = COLUMN - LABELS - VALUES
END = 2.5
"""The ratio at the right end of the track; longer bars are cut there."""

STYLE = """
  text { font-family: system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif }
  text { font-size: 11.5px; fill: #57606a }
  .h1 { font-size: 17px; font-weight: 600; fill: #1f2328 }
  .h2 { font-size: 12.5px; font-weight: 600; fill: #1f2328 }
  .ours { fill: #0969da; font-weight: 600 }
  .small { font-size: 10.5px }
  .sheet { fill: #ffffff; stroke: #d0d7de }
  .track { fill: #eaeef2 }
  .bar { fill: #8c959f }
  .bar.ours { fill: #0969da }
  .one { stroke: #1f2328; stroke-opacity: .55; stroke-dasharray: 2 3 }
  .cut { stroke: #ffffff; stroke-width: 2; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .h1, .h2 { fill: #f0f6fc } .ours { fill: #4493f8 }
    .sheet { fill: #0d1117; stroke: #3d444d } .track { fill: #21262d } .bar { fill: #656c76 }
    .bar.ours { fill: #4493f8 } .one { stroke: #f0f6fc } .cut { stroke: #0d1117 }
  }
"""

Document = dict[str, Any]


def chart(doc: Document) -> str:
    """The SVG text."""
    panels = [_Panel(doc, name) for name in PANELS if name in doc["scenarios"]]
    panels = [panel for panel in panels if panel.bars]
    height = HEAD
    body: list[str] = []
    for left, right in zip(panels[::2], [*panels[1::2], None], strict=False):
        body.extend(left.draw(MARGIN, height))
        if right is not None:
            body.extend(right.draw(MARGIN + COLUMN + GAP, height))
        height += max(panel.height for panel in (left, right) if panel is not None)
    height += FOOT
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="Time relative to the raw MCP SDK">',
        f"<style>{STYLE}</style>",
        f'<rect class="sheet" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        _text(MARGIN, 36, "Time relative to the raw MCP SDK", "h1"),
        _text(MARGIN, 58, "Shorter is better; the dashed line is the SDK. Median of ratios within a cycle."),
    ]
    foot = [_text(MARGIN, height - FOOT + 16 + 14 * n, line, "small") for n, line in enumerate(_foot(doc))]
    return "\n".join([*head, *body, *foot, "</svg>"]) + "\n"


class _Panel:
    """One scenario."""

    def __init__(self, doc: Document, name: str) -> None:
        scenario, metric = doc["scenarios"][name], PANELS[name]
        inverse: bool = scenario["metrics"][metric]["more_is_better"]
        self._title: str = scenario["title"]
        self.bars: list[tuple[str, str, float]] = []
        for contestant, figures in scenario["figures"].items():
            ratio = figures[metric]["ratio"]
            if ratio:
                label = doc["contestants"][contestant]["label"]
                self.bars.append((contestant, label, 1 / ratio if inverse else ratio))

    @property
    def height(self) -> int:
        return TITLE + PITCH * len(self.bars) + 22

    def draw(self, x: int, y: int) -> Iterator[str]:
        yield _text(x, y + 14, self._title, "h2")
        track, one = x + LABELS, x + LABELS + TRACK / END
        for n, (contestant, label, ratio) in enumerate(self.bars):
            top = y + TITLE + PITCH * n
            ours = "ours" if contestant == OURS else ""
            length = max(min(ratio / END, 1.0) * TRACK, 1.5)
            yield _text(track - 8, top + BAR - 1, label, ours, anchor="end")
            yield _bar(track, top, TRACK, "track")
            yield _bar(track, top, length, f"bar {ours}")
            if ratio > END:
                cut = track + TRACK - 12
                yield f'<path class="cut" d="M{cut} {top + BAR + 1}l5 {-BAR - 2}m3 0l-5 {BAR + 2}"/>'
            yield _text(track + TRACK + 8, top + BAR - 1, _times(ratio), ours)
        bottom = y + TITLE + PITCH * len(self.bars) - PITCH + BAR
        yield f'<path class="one" d="M{one:.1f} {y + TITLE - 3}V{bottom + 3}"/>'


def _foot(doc: Document) -> list[str]:
    versions = [
        f"{package} {version}"
        for contestant in doc["contestants"].values()
        for package, version in list(contestant["versions"].items())[:1]
    ]
    return [f"{doc['date']} · Python {doc['python']} · {doc['machine']}", " · ".join(versions)]


def _times(ratio: float) -> str:
    return f"{ratio:.0f}×" if ratio >= 9.95 else f"{ratio:.1f}×" if ratio >= 1.95 else f"{ratio:.2f}×"


def _bar(x: float, y: float, width: float, style: str) -> str:
    return f'<rect class="{style}" x="{x}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>'


def _text(x: float, y: float, text: str, style: str = "", *, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{style}" text-anchor="{anchor}">{escape(text)}</text>'
