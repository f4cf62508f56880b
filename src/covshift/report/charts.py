"""Curves and histograms as charts of the page, which its script reads out by pointer, touch and keyboard.

Matplotlib draws them, as it draws the files of a paper. Altair and Plotly were tried: they add 0.95 and 4.8 MB to the
page, Altair's runtime needs `eval`, which the page's security policy forbids, and neither reads a curve out by keyboard.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, MaxNLocator

from covshift.report.drawing import diverged_runs, draw_panel, needs_logarithm, panel_strokes
from covshift.report.figure_file import Arm, Histogram, Panel, Run
from covshift.report.plots import COLORS, STYLE, to_svg


class Size(NamedTuple):
    """Size of a chart, in pixels; its axes keep the same distance from every edge."""

    width: int
    height: int

    @property
    def edges(self) -> tuple[int, int, int, int]:
        """Left, right, top and bottom of the axes."""
        return 52, self.width - 16, 26, self.height - 44


NARROW, WIDE = Size(440, 290), Size(920, 400)
"""Charts side by side, which fit a phone too; and a chart that has the page's width to itself."""

_CHART_STYLE: Any = STYLE | {
    "axes.axisbelow": True,
    "axes.grid.axis": "y",
    "axes.spines.left": False,
    "axes.xmargin": 0,
    "font.size": 12,
    "lines.linewidth": 2.2,
    "lines.markersize": 8,
    "svg.fonttype": "none",
    "text.color": "#1d2433",
    "xtick.color": "#5b6478",
    "ytick.color": "#5b6478",
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}


class Chart(NamedTuple):
    """A chart of the page.

    Attributes:
        svg: its picture.
        curves: for the script, the label, the color and the points of each curve: their pixels, what to say about each,
            and the values of single runs there.
        legend: label, color and dashes of each line.
    """

    svg: Markup
    curves: list[dict[str, Any]]
    legend: list[dict[str, str]]


def draw_curves(panel: Panel, labels: Sequence[str], size: Size = NARROW) -> Chart:
    """A panel of a figure, with each run as a thin line, which the page shows on demand.

    Args:
        panel: as in figure.json.
        labels: of all arms of the figure, so that an arm has one color in all of its panels.
        size: of the picture.
    """
    with mpl.rc_context(_CHART_STYLE):
        axes = _new_axes(size)
        for artist, name in draw_panel(axes, panel, labels, runs=True).items():
            artist.set_gid(name)
        title = f"{panel['title']}: {panel['y']} against {panel['x']}"
        svg = _to_chart(axes, panel["x"], panel["y"], title, size)
    crosses = (
        escape(f"{run['name']} diverged after {say(run['x'][-1])}")
        for arm in panel["arms"]
        for run in diverged_runs(arm)
    )
    svg = re.sub(
        r'<g class="[^"]* diverged">', lambda tag: f"{tag[0]}<title>{next(crosses)}</title>", svg
    )
    strokes = panel_strokes(panel, labels)
    legend = [
        {"label": label, "color": color, "dash": " ".join(f"{2 * length:g}" for length in dash)}
        for label, color, dash in strokes
    ]
    curves = [
        {
            "label": arm["label"],
            "color": stroke.color,
            "points": _pixels(axes, arm["x"], arm["middle"], size),
        }
        | _readings(arm, panel["x"])
        for arm, stroke in zip(panel["arms"], strokes, strict=False)
    ]
    return Chart(Markup(svg), curves, legend)


def draw_histogram(histogram: Histogram) -> Chart:
    """Counts as bars, on a logarithmic axis where the largest count would hide the others."""
    edges, counts = histogram["edges"], histogram["counts"]
    bars = [(*sides, count) for sides, count in zip(pairwise(edges), counts, strict=True)]
    filled = [count for count in counts if count > 0]
    with mpl.rc_context(_CHART_STYLE | {"patch.linewidth": 0.4}):
        axes = _new_axes(NARROW)
        base = 0.0
        if needs_logarithm(filled):
            base = min(filled) / 2  # So that the smallest bar can be seen.
            axes.set_yscale("log")
        for left, right, count in bars:
            if count > 0:
                (bar,) = axes.bar(left, count - base, right - left, base, align="edge")
                bar.set(facecolor=COLORS[0], edgecolor="white", gid="bar")
        axes.set(xlim=(edges[0], edges[-1]))
        axes.set_ylim(bottom=base)
        title = f"{histogram['title']}: histogram of {histogram['x']}"
        svg = _to_chart(axes, histogram["x"], "count", title, NARROW)
    middles = [(left + right) / 2 for left, right, _ in bars]
    curve = {
        "label": histogram["title"],
        "color": COLORS[0],
        "points": _pixels(axes, middles, [max(count, base) for count in counts], NARROW),
        "texts": [
            [f"{say(count)} from {say(left)} to {say(right)}"] for left, right, count in bars
        ],
        "runs": [[] for _ in bars],
    }
    return Chart(Markup(svg), [curve], [])


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


def say_tick(value: float) -> str:
    """The number at a tick, with k and M for round thousands and millions.

    Example:
        >>> [say_tick(value) for value in (20000.0, 2500000.0, 0.25, 1e-05, 0.0, 1500.0)]
        ['20k', '2.5M', '0.25', '1e-05', '0', '1.5k']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if size <= abs(value) < 1e9:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _new_axes(size: Size) -> Axes:
    width, height = size
    left, right, top, bottom = size.edges
    drawing = Drawing(figsize=(width / 72, height / 72), dpi=72)  # So that SVG's unit is a pixel.
    drawing.subplots_adjust(left / width, 1 - bottom / height, right / width, 1 - top / height)
    return drawing.add_subplot()


def _to_chart(axes: Axes, x: str, y: str, title: str, size: Size) -> str:
    """The drawing as an SVG element that the page's style sheet and script can work with."""
    drawing = axes.figure
    assert isinstance(drawing, Drawing)
    width, height = size
    _, right, top, bottom = size.edges
    logarithmic = axes.get_yscale() == "log"
    note = " (logarithmic)" if logarithmic else ""
    drawing.text(4 / width, 1 - 13 / height, y + note, weight="bold")
    drawing.text(right / width, 8 / height, x, weight="bold", horizontalalignment="right")
    for axis in (axes.xaxis,) if logarithmic else (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: say_tick(value)))
    svg = to_svg(drawing, f"{title}. Arrow keys read its values.")
    svg = svg.replace("<svg ", '<svg class="chart" tabindex="0" ', 1)
    # A page has many charts, so that ids would repeat; a tenth of a pixel is exact enough.
    svg = re.sub(r'<g id="((?:arm|bar)[^"]*)">', r'<g class="\1">', svg)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), svg)
    cursor = f'<line class="rule" y1="{bottom}" y2="{top}"/><circle r="4"/>'
    return svg.replace("</svg>", f'<g class="cursor" hidden>{cursor}</g></svg>')


def _pixels(axes: Axes, x: Sequence[float], y: Sequence[float], size: Size) -> list[list[float]]:
    """Where points are in the picture, whose vertical axis points down."""
    if not x:
        return []
    pixels = axes.transData.transform(np.column_stack([x, y]))
    return [[round(float(a), 1), round(size.height - float(b), 1)] for a, b in pixels]


def _readings(arm: Arm, x_label: str) -> dict[str, Any]:
    """What to say about each point of an arm; its runs are named by their seeds where that tells them apart."""
    seeds = [run["config"].get("seed") for run in arm["runs"]]
    by_seed = None not in seeds and len(set(seeds)) == len(seeds)
    names = [f"seed {seed}" for seed in seeds] if by_seed else [run["name"] for run in arm["runs"]]
    values = [dict(zip(run["x"], run["y"], strict=True)) for run in arm["runs"]]
    texts: list[list[str]] = []
    runs: list[list[str]] = []
    for x, middle, low, high in zip(arm["x"], arm["middle"], arm["low"], arm["high"], strict=True):
        alive = sum(x in value for value in values)
        texts.append(
            [
                f"{x_label}: {say(x)}",
                f"interquartile mean: {say(middle)} ({alive} of {len(values)} runs)",
                "one run has no interval" if alive == 1 else f"interval: {say(low)} to {say(high)}",
            ]
        )
        said = [
            say(value[x]) if x in value else "diverged" if _ended(run, x) else "no value"
            for run, value in zip(arm["runs"], values, strict=True)
        ]
        runs.append([f"{name}: {text}" for name, text in zip(names, said, strict=True)])
    return {"texts": texts, "runs": runs}


def _ended(run: Run, x: float) -> bool:
    """Whether a run diverged before x."""
    return run["status"] == "diverged" and x > max(run["x"], default=-math.inf)
