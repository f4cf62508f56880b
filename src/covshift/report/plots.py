"""The house style of plots, and figures as text that a page can hold."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLORS = ("#1b6ca8", "#c8553d", "#588157", "#8e5ea2", "#d19a1f", "#4a4e69")
"""Blue, red, green, violet, ochre, slate: distinct in print and for most color-blind readers."""

STYLE: Any = {
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.dpi": 120,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.alpha": 0.25,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "covshift",
}


def panels(count: int, *, width: float = 10.0, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels side by side, without touching any global state."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, count, squeeze=False)
    return figure, list(axes[0])


def to_svg(figure: Figure, description: str) -> str:
    """The figure as an SVG element that scales with the page and names itself to screen readers."""
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return re.sub(
        r'<svg([^>]*?) width="[^"]*"', rf'<svg role="img" aria-label="{label}"\1', svg, count=1
    ).replace(' height="', ' data-height="', 1)
