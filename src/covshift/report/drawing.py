"""The panels of a figure: the files of a paper, and what the charts of the page share with them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from covshift.report.figure_file import Arm, Panel, Run
from covshift.report.plots import COLORS, house_style, set_subscripts

_LOGARITHMIC_FROM = 100.0
"""Positive values that span more than this factor are drawn on a logarithmic axis: the largest would hide the rest."""

_ARM_DASHES = ((), (3.7, 1.6), (1.0, 1.65))
"""Once all colors are used, further arms are dashed, then dotted."""

_LEVEL_DASHES = ((4.0, 3.0), (1.0, 3.0), (9.0, 3.0))

_NO_DATE = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


class Stroke(NamedTuple):
    """How the line of an arm or of a level is drawn; `dash` is in units of the line's width."""

    label: str
    color: str
    dash: tuple[float, ...]

    @property
    def style(self) -> str | tuple[int, tuple[float, ...]]:
        """Matplotlib's line style."""
        return (0, self.dash) if self.dash else "-"


def draw_figure(figure: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Draws the panels of a figure into vector files.

    Args:
        figure: as in figure.json, with at least one panel.
        paths: files to write, `.svg` or `.pdf`; the same figure gives the same bytes.
    """
    panels: list[Panel] = figure["panels"]
    labels = arm_labels(panels)
    columns = _columns([panel["title"] for panel in panels])
    rows = -(-len(panels) // columns)
    with house_style():
        drawing = Drawing(figsize=(1.2 + 3.6 * columns, 0.6 + 2.8 * rows), layout="constrained")
        grid = list(drawing.subplots(rows, columns, squeeze=False).flat)
        for axes, panel in zip(grid, panels, strict=False):
            draw_panel(axes, panel, labels)
            axes.set(title=panel["title"], xlabel=panel["x"], ylabel=panel["y"])
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        for axes in grid[len(panels) :]:
            axes.remove()
        lines = {
            text: line
            for axes in grid
            for line, text in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        drawing.legend(
            lines.values(), lines.keys(), loc="outside lower center", ncols=min(3, columns + 1)
        )
        set_subscripts(drawing)
        for path in paths:
            drawing.savefig(path, metadata=_NO_DATE[path.suffix])


def _columns(titles: Sequence[str]) -> int:
    """Columns of a grid of panels: a row per title where all have as many panels, else nearly a square.

    Example:
        >>> _columns(["Asterix"] * 3 + ["Breakout"] * 3), _columns(["Asterix", "Breakout", "Seaquest"])
        (3, 2)
    """
    counts = {titles.count(title) for title in titles}
    if len(counts) == 1 and 1 < max(counts) < len(titles):
        return max(counts)
    return math.ceil(math.sqrt(len(titles)))


def draw_panel(
    axes: Axes, panel: Panel, labels: Sequence[str], *, runs: bool = False
) -> dict[Artist, str]:
    """Draws each arm's middle with its band, a cross where a run diverged, and level lines.

    Args:
        axes: where to draw.
        panel: as in figure.json.
        labels: of all arms of the figure, so that an arm has one color in all of its panels.
        runs: whether each run is drawn as a thin line too.

    Returns:
        What was drawn of each arm, with the arm's number and the kind of line.
    """
    names: dict[Artist, str] = {}
    strokes = panel_strokes(panel, labels)
    for k, (arm, stroke) in enumerate(zip(panel["arms"], strokes, strict=False)):
        color = stroke.color
        band = axes.fill_between(
            arm["x"], arm["low"], arm["high"], color=color, alpha=0.14, linewidth=0
        )
        names[band] = f"arm arm-{k} band"
        for run in arm["runs"] if runs else []:
            (line,) = axes.plot(run["x"], run["y"], color=color, linewidth=0.8, alpha=0.45)
            names[line] = f"arm arm-{k} run"
        (middle,) = axes.plot(
            *(arm["x"], arm["middle"]),
            marker="o" if len(arm["x"]) == 1 else None,
            linestyle=stroke.style,
            color=color,
            label=stroke.label,
        )
        names[middle] = f"arm arm-{k} middle"
        for run in diverged_runs(arm):
            (cross,) = axes.plot(run["x"][-1], run["y"][-1], "x", color=color, markeredgewidth=2)
            names[cross] = f"arm arm-{k} diverged"
    for level, (label, color, dash) in zip(
        panel["lines"], strokes[len(panel["arms"]) :], strict=True
    ):
        axes.axhline(level["y"], color=color, linewidth=1.3, linestyle=(0, dash), label=label)
    values = [level["y"] for level in panel["lines"]]
    for arm in panel["arms"]:
        values += arm["low"] + arm["middle"] + arm["high"]
        values += [value for run in arm["runs"] for value in run["y"]]
    axes.set_yscale("log" if needs_logarithm(values) else "linear")
    return names


def arm_labels(panels: Iterable[Panel]) -> list[str]:
    """The labels of all arms, each once; the index of an arm's label decides its color."""
    return list(dict.fromkeys(arm["label"] for panel in panels for arm in panel["arms"]))


def panel_strokes(panel: Panel, labels: Sequence[str]) -> list[Stroke]:
    """A stroke for each arm, then one for each level line."""
    strokes = []
    for arm in panel["arms"]:
        turn, index = divmod(labels.index(arm["label"]), len(COLORS))
        strokes.append(Stroke(arm["label"], COLORS[index], _ARM_DASHES[turn % len(_ARM_DASHES)]))
    for level, dash in zip(panel["lines"], cycle(_LEVEL_DASHES), strict=False):
        strokes.append(Stroke(level["label"], "#5b6478", dash))
    return strokes


def diverged_runs(arm: Arm) -> list[Run]:
    """The runs that diverged after they were measured at least once."""
    return [run for run in arm["runs"] if run["status"] == "diverged" and run["x"]]


def needs_logarithm(values: Sequence[float]) -> bool:
    """Whether values are so far apart that a linear axis would hide most of them."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > _LOGARITHMIC_FROM
