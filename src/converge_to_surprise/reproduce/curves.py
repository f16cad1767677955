"""The number of surprising clusters along a run, as SVG (figures 6 to 8 of the paper)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

POINTS = 600
"""At most so many points per curve."""
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 56, 130, 44, 48
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8c510a")


class Point(NamedTuple):
    """The record at the end of one stretch of a run."""

    step: int
    epoch: int
    stage: str
    surprising: int


class Curve(NamedTuple):
    """One run's curve."""

    label: str
    points: list[Point]


def thinned(records: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The last record of each of at most ``most`` equal stretches; the last record of a stage always stays."""
    stretch = max(1, -(-len(records) // most))
    return [
        record
        for position, record in enumerate(records)
        if (position + 1) % stretch == 0
        or position + 1 == len(records)
        or records[position + 1]["stage"] != record["stage"]
    ]


def thin(records: Sequence[dict[str, Any]], most: int = POINTS) -> list[Point]:
    """What the figures show of at most about ``most`` records."""
    return [
        Point(record["step"], record["epoch"], record["stage"], record["surprising"])
        for record in thinned(records, most)
    ]


def ticks(highest: float, about: int = 6) -> list[int]:
    """Round numbers from 0 to at least ``highest``.

    >>> ticks(23), ticks(601)
    ([0, 5, 10, 15, 20, 25], [0, 200, 400, 600, 800])
    """
    sizes = (factor * 10**power for power in itertools.count() for factor in (1, 2, 5))
    size = next(size for size in sizes if size * about >= highest)
    return list(range(0, math.ceil(highest / size) * size + 1, size))


LETTER = 5.5
"""Width of a small letter, in pixels."""


def draw(title: str, curves: Sequence[Curve], classes: int | None) -> str:
    """An SVG of all curves over the steps of training, with the stages marked and a dashed line at ``classes``."""
    last = max((curve.points[-1].step for curve in curves if curve.points), default=1)
    levels = ticks(max([classes or 0, 1, *(point.surprising for curve in curves for point in curve.points)]))

    def x(step: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * step / max(1, last), 1)

    def y(count: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * count / levels[-1], 1)

    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 18, title, size=14),
    ]
    for level in levels:
        parts.append(_line(LEFT, y(level), right, y(level), "#e5e5e5"))
        parts.append(_text(LEFT - 8, y(level) + 4, str(level), anchor="end"))
    for step in ticks(last):
        if step <= last:
            parts.append(_line(x(step), floor, x(step), floor + 5, "#333333"))
            parts.append(_text(x(step), floor + 18, f"{step:,}"))
    parts += [_line(LEFT, floor, right, floor, "#333333"), _line(LEFT, TOP, LEFT, floor, "#333333")]
    parts.append(_text((LEFT + right) / 2, HEIGHT - 10, "training step"))
    middle = (TOP + floor) / 2
    parts.append(
        f'<text x="16" y="{middle}" transform="rotate(-90 16 {middle})" text-anchor="middle">surprising clusters</text>'
    )
    if classes:
        parts.append(_line(LEFT, y(classes), right, y(classes), "#999999", dash="6 4"))
        parts.append(_text(right + 6, y(classes) + 4, f"{classes} classes", anchor="start"))
    end = 0.0
    for name, begin in stages(curves):
        if begin:
            parts.append(_line(x(begin), TOP, x(begin), floor, "#bbbbbb", dash="2 3"))
        # A stage of a single step, such as merging, has no room of its own for its name.
        place = max(x(begin) + 3, end)
        parts.append(_text(min(place, right), TOP - 6, name, anchor="start", size=11))
        end = place + LETTER * (len(name) + 2)
    for number, curve in enumerate(curves):
        color = COLORS[number % len(COLORS)]
        dots = " ".join(f"{x(point.step)},{y(point.surprising)}" for point in curve.points)
        parts.append(
            f'<polyline points="{dots}" fill="none" stroke="{color}" stroke-width="1.4" stroke-opacity="0.85"/>'
        )
        height = TOP + 14 + 18 * number
        parts.append(_line(right + 14, height - 4, right + 34, height - 4, color, thick=3))
        parts.append(_text(right + 40, height, curve.label, anchor="start"))
    return "\n".join([*parts, "</svg>\n"])


def stages(curves: Sequence[Curve]) -> list[tuple[str, int]]:
    """The stages of the longest curve and the step at which each begins."""
    longest = max(curves, key=lambda curve: len(curve.points), default=Curve("", []))
    found: list[tuple[str, int]] = []
    previous = -1
    for point in longest.points:
        if not found or found[-1][0] != point.stage:
            found.append((point.stage, previous + 1))
        previous = point.step
    return found


def _line(x1: float, y1: float, x2: float, y2: float, color: str, dash: str = "", thick: float = 1) -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}" stroke-width="{thick}"{dashes}/>'


def _text(x: float, y: float, words: str, anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'
