"""The house style of plots, and figures as SVG for a page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cycler import cycler

if TYPE_CHECKING:  # Estimates can be drawn, but most are not, and matplotlib takes long to import.
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = (
    *("#1b6ca8", "#c8553d", "#588157", "#8e5ea2", "#d19a1f", "#4a4e69"),
    *("#17a398", "#b5179e", "#7a4b2a", "#00a5e0", "#9aa32a", "#000000"),
)
"""Blue, red, green, violet, ochre, slate, which are distinct in print and for most color-blind readers; then teal, magenta,
brown, sky, olive and black, so that figures of up to twelve arms repeat none."""

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


@contextmanager
def house_style() -> Iterator[None]:
    """Draws everything within the block in the house style."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        yield


def panels(count: int, *, width: float = 10.0, height: float = 4.0) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)
    return figure, list(axes[0])


def legend_below(axes: Axes, **options: Any) -> None:
    """Puts the legend below the panel, where it hides no data."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), **options)


def to_svg(figure: Figure, description: str) -> str:
    """The figure as an SVG element that scales with the page and describes itself to screen readers.

    Symbols such as d_μ in labels are set with real subscripts.
    """
    set_subscripts(figure)
    buffer = io.StringIO()
    unnamed = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=unnamed)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return re.sub(
        r'<svg([^>]*?) width="[^"]*"', rf'<svg role="img" aria-label="{label}"\1', svg, count=1
    ).replace(' height="', ' data-height="', 1)


def set_subscripts(figure: Figure) -> None:
    """Sets d_μ and the like in a figure's texts with real subscripts; a dollar sign stays one."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        plain = text.get_text().replace("$", r"\$").replace("_γ̂", r"$_{\hat{γ}}$")
        text.set_text(re.sub(r"_([πμd])", r"$_{\1}$", plain))
