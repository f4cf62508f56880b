"""The curves of a figure as files for a paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covshift.report.charts import LEVEL_DASHES, upward_axis
from covshift.report.plots import COLORS, house_style, subscripts

_NO_DATE = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def draw_figure(figure: dict[str, Any], paths: Sequence[Path]) -> None:
    """Draws the panels of a figure into vector files: for each arm the middle and its band, crosses where runs diverged.

    Args:
        figure: as in figure.json, with at least one panel.
        paths: files to write, `.svg` or `.pdf`; the same figure gives the same bytes.
    """
    panels = figure["panels"]
    labels = list(dict.fromkeys(arm["label"] for panel in panels for arm in panel["arms"]))
    columns = math.ceil(math.sqrt(len(panels)))
    rows = -(-len(panels) // columns)
    with house_style():
        drawing = Figure(figsize=(1.2 + 3.6 * columns, 0.6 + 2.8 * rows), layout="constrained")
        grid = list(drawing.subplots(rows, columns, squeeze=False).flat)
        for axes, panel in zip(grid, panels, strict=False):
            _draw_panel(axes, panel, labels)
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
        for path in paths:
            drawing.savefig(path, metadata=_NO_DATE[path.suffix])


def _draw_panel(axes: Axes, panel: dict[str, Any], labels: Sequence[str]) -> None:
    for arm in panel["arms"]:
        k = labels.index(arm["label"])
        color, style = COLORS[k % len(COLORS)], ("-", "--", ":")[k // len(COLORS) % 3]
        axes.fill_between(arm["x"], arm["low"], arm["high"], color=color, alpha=0.14, linewidth=0)
        axes.plot(arm["x"], arm["middle"], style, color=color, label=subscripts(arm["label"]))
        for run in arm["runs"]:
            if run["status"] == "diverged" and run["x"]:
                axes.plot(run["x"][-1], run["y"][-1], "x", color=color, markeredgewidth=2)
    for line, dash in zip(panel["lines"], cycle(LEVEL_DASHES), strict=False):
        dashes = (0, tuple(float(length) for length in dash.split()))
        axes.axhline(
            line["y"],
            color="#5b6478",
            linewidth=1.3,
            linestyle=dashes,
            label=subscripts(line["label"]),
        )
    axes.set_yscale("log" if upward_axis(panel).logarithmic else "linear")
    axes.set(title=panel["title"], xlabel=panel["x"], ylabel=subscripts(panel["y"]))
