"""Learning curves and histograms as small SVG charts that a script on the page can read out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import Any, NamedTuple

from markupsafe import Markup, escape
from matplotlib.ticker import MaxNLocator

from covshift.report.plots import COLORS

_WIDTH, _HEIGHT = 440, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 424, 26, 246
LEVEL_DASHES = ("4 3", "1 3", "9 3")
"""Of level lines, one after the other, so that they can be told apart."""

_DASHES = ("", "7 3", "2 3")
_LOGARITHMIC_FROM = 100.0
"""Positive values that span more than this factor are drawn on a logarithmic axis: the largest would hide the rest."""


class Chart(NamedTuple):
    """A chart: the picture, what a reader can ask of it, and the colors' meaning."""

    svg: Markup
    data: dict[str, Any]
    legend: list[dict[str, str]]


@dataclass(frozen=True)
class Axis:
    """Values to pixels.

    Attributes:
        low: value at `start`.
        high: value at `end`.
        start: pixel.
        end: pixel.
        logarithmic: whether equal factors are equally far apart.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    @classmethod
    def across(cls, values: Iterable[float]) -> Axis:
        """The horizontal axis, from the least value to the greatest."""
        known = list(values) or [0.0]
        low, high = min(known), max(known)
        return cls(low, high if high > low else low + (abs(low) / 10 or 1.0), _LEFT, _RIGHT)

    @classmethod
    def upwards(cls, values: Iterable[float]) -> Axis:
        """The vertical axis, with some room at both ends; logarithmic if it must be."""
        known = list(values) or [0.0, 1.0]
        low, high = min(known), max(known)
        if low > 0 and high / low > _LOGARITHMIC_FROM:
            return cls(low / 1.3, high * 1.3, _BOTTOM, _TOP, logarithmic=True)
        room = 0.05 * (high - low) or abs(low) / 10 or 1.0
        return cls(low - room, high + room, _BOTTOM, _TOP)

    def place(self, value: float) -> float:
        """The pixel of a value, kept on the axis.

        Example:
            >>> Axis(1.0, 100.0, 0.0, 50.0, logarithmic=True).place(10.0)
            25.0
        """
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values along the axis."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            step = max(1, math.ceil((last - first) / 5))
            return [10.0**power for power in range(first, last + 1, step)]
        room = 1e-9 * (self.high - self.low)
        ticks = _locate(self.low, self.high)
        return [tick for tick in ticks if self.low - room <= tick <= self.high + room]

    def record(self) -> dict[str, Any]:
        """What the page's script needs to find a place."""
        return {
            "low": self.low,
            "high": self.high,
            "start": self.start,
            "end": self.end,
            "log": self.logarithmic,
        }


def draw_curves(panel: dict[str, Any], labels: Sequence[str]) -> Chart:
    """A panel of a figure: for each arm the runs thin, the middle thick, the interval as a band.

    A run that diverged ends with a cross where it ended.

    Args:
        panel: as in figure.json.
        labels: of all arms of the figure, so that an arm has one color in all of its panels.
    """
    arms, lines = panel["arms"], panel["lines"]
    x = Axis.across(at for arm in arms for part in (arm, *arm["runs"]) for at in part["x"])
    y = upward_axis(panel)
    parts = [_frame(x, y, panel["x"], panel["y"])]
    for line, dash in zip(lines, cycle(LEVEL_DASHES), strict=False):
        at = y.place(line["y"])
        parts.append(
            f'<line class="level" stroke-dasharray="{dash}" x1="{_LEFT}" x2="{_RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        )
    legend = []
    for arm in arms:
        k = labels.index(arm["label"])
        color, dash = COLORS[k % len(COLORS)], _DASHES[k // len(COLORS) % len(_DASHES)]
        legend.append({"label": arm["label"], "color": color, "dash": dash})
        parts.append(_arm(arm, x, y, color, dash))
    legend += [
        {"label": line["label"], "color": "#5b6478", "dash": dash}
        for line, dash in zip(lines, cycle(LEVEL_DASHES), strict=False)
    ]
    label = f"{panel['title']}: {panel['y']} against {panel['x']}. Arrow keys read its values."
    data = {
        "x": {"label": panel["x"]} | x.record(),
        "y": {"label": panel["y"]} | y.record(),
        "arms": [_readings(arm, legend[k]["color"]) for k, arm in enumerate(arms)],
    }
    return Chart(_svg(parts, label), data, legend)


def upward_axis(panel: dict[str, Any]) -> Axis:
    """The vertical axis of a panel of a figure, on which all that is drawn has room."""
    arms = panel["arms"]
    values = [value for arm in arms for name in ("low", "middle", "high") for value in arm[name]]
    values += [value for arm in arms for run in arm["runs"] for value in run["y"]]
    return Axis.upwards([*values, *(line["y"] for line in panel["lines"])])


def draw_histogram(histogram: dict[str, Any]) -> Chart:
    """Counts as bars; on a logarithmic axis where the fullest bar would hide the others.

    Args:
        histogram: as in figure.json.
    """
    edges, counts = histogram["edges"], histogram["counts"]
    x = Axis.across(edges)
    filled = [count for count in counts if count > 0] or [1]
    # A logarithmic axis begins below the least bar, so that it can be seen; any other at zero.
    y = Axis.upwards([min(filled) / 2, *filled])
    if not y.logarithmic:
        y = Axis(0.0, 1.05 * max(filled), _BOTTOM, _TOP)
    parts = [_frame(x, y, histogram["x"], "count")]
    for (left, right), count in zip(pairwise(edges), counts, strict=True):
        if count > 0:
            begin, end, top = x.place(left), x.place(right), y.place(count)
            parts.append(
                f'<rect class="bar" x="{begin:.2f}" y="{top:.1f}" '
                f'width="{max(end - begin - 0.4, 0.4):.2f}" height="{_BOTTOM - top:.1f}"/>'
            )
    notes = [
        f"{say(count)} from {say(left)} to {say(right)}"
        for (left, right), count in zip(pairwise(edges), counts, strict=True)
    ]
    middles = [(left + right) / 2 for left, right in pairwise(edges)]
    arm = {"label": histogram["title"], "color": COLORS[0], "x": middles, "middle": counts}
    data = {
        "x": {"label": histogram["x"]} | x.record(),
        "y": {"label": "count"} | y.record(),
        "arms": [arm | {"notes": notes}],
    }
    label = f"{histogram['title']}: histogram of {histogram['x']}. Arrow keys read its values."
    return Chart(_svg(parts, label), data, [])


def say(value: float) -> str:
    """A number to four digits.

    Example:
        >>> say(60000.0), say(1234567.0), say(0.012345), say(-3.0), say(2.5e-7)
        ('60,000', '1,235,000', '0.01235', '-3', '2.5e-07')
    """
    if value and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.4g}"
    short = float(f"{value:.4g}")
    return f"{short:,.0f}" if short == int(short) else f"{short:,.10g}"


def _arm(arm: dict[str, Any], x: Axis, y: Axis, color: str, dash: str) -> str:
    parts = [f'<g class="arm" style="color:{color}">']
    if len(arm["x"]) > 1:
        there = _points(arm["x"], arm["high"], x, y)
        back = _points(arm["x"][::-1], arm["low"][::-1], x, y)
        parts.append(f'<polygon class="band" points="{there} {back}"/>')
    for run in arm["runs"]:
        parts.append(f'<polyline class="run" points="{_points(run["x"], run["y"], x, y)}"/>')
        if run["status"] == "diverged" and run["x"]:
            at, height = x.place(run["x"][-1]), y.place(run["y"][-1])
            name = escape(f"{run['name']} diverged after {say(run['x'][-1])}")
            parts.append(
                f'<path class="diverged" d="M{at - 5:.1f} {height - 5:.1f}l10 10m0-10l-10 10">'
                f"<title>{name}</title></path>"
            )
    style = f' stroke-dasharray="{dash}"' if dash else ""
    points = _points(arm["x"], arm["middle"], x, y)
    parts.append(f'<polyline class="middle"{style} points="{points}"/>')
    if len(arm["x"]) == 1:
        at, height = x.place(arm["x"][0]), y.place(arm["middle"][0])
        parts.append(f'<circle class="only" cx="{at:.1f}" cy="{height:.1f}" r="3.5"/>')
    return "".join(parts) + "</g>"


def _readings(arm: dict[str, Any], color: str) -> dict[str, Any]:
    numbers = {name: [_short(value) for value in arm[name]] for name in ("middle", "low", "high")}
    seeds = [run["config"].get("seed") for run in arm["runs"]]
    by_seed = None not in seeds and len(set(seeds)) == len(seeds)
    runs = [
        {
            "name": f"seed {seed}" if by_seed else run["name"],
            "status": run["status"],
            "x": run["x"],
            "y": [_short(value) for value in run["y"]],
        }
        for run, seed in zip(arm["runs"], seeds, strict=True)
    ]
    return {"label": arm["label"], "color": color, "x": arm["x"], "runs": runs} | numbers


def _frame(x: Axis, y: Axis, x_label: str, y_label: str) -> str:
    parts = []
    for tick in y.ticks():
        at = y.place(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="end" x="{_LEFT - 6}" y="{at + 4:.1f}">{say_tick(tick)}</text>')
    for tick in x.ticks():
        at = x.place(tick)
        parts.append(
            f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{_BOTTOM}" y2="{_BOTTOM + 4}"/>'
        )
        parts.append(f'<text class="mid" x="{at:.1f}" y="{_BOTTOM + 18}">{say_tick(tick)}</text>')
    note = " (logarithmic)" if y.logarithmic else ""
    parts.append(
        f'<line class="axis" x1="{_LEFT}" x2="{_RIGHT}" y1="{_BOTTOM}" y2="{_BOTTOM}"/>'
        f'<text class="name" x="4" y="13">{escape(y_label)}{note}</text>'
        f'<text class="name end" x="{_RIGHT}" y="{_HEIGHT - 8}">{escape(x_label)}</text>'
    )
    return "".join(parts)


def say_tick(value: float) -> str:
    """A tick's number, with k and M for round thousands and millions.

    Example:
        >>> [say_tick(value) for value in (20000.0, 2500000.0, 0.25, 1e-05, 0.0, 1500.0)]
        ['20k', '2.5M', '0.25', '1e-05', '0', '1.5k']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if size <= abs(value) < 1e9:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _svg(parts: Sequence[str], label: str) -> Markup:
    cursor = '<g class="cursor" hidden><line class="rule"/><circle r="4"/></g>'
    return Markup(
        f'<svg class="chart" role="img" tabindex="0" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'aria-label="{escape(label)}">{"".join(parts)}{cursor}</svg>'
    )


def _points(xs: Sequence[float], ys: Sequence[float], x: Axis, y: Axis) -> str:
    pairs = zip(xs, ys, strict=True)
    return " ".join(f"{x.place(a):.1f},{y.place(b):.1f}" for a, b in pairs)


def _locate(low: float, high: float) -> list[float]:
    ticks = MaxNLocator(nbins=5, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [0.0 if abs(tick) < 1e-12 * (high - low) else float(tick) for tick in ticks]


def _short(value: float) -> float:
    return float(f"{value:.6g}")
