"""Figures of a study, drawn in the house style for its page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from covshift.experiments.theory.figures import Exhibit


def draw_exhibits(
    console: Console, draws: Sequence[Callable[[], Exhibit]], label: str = "figures"
) -> list[dict[str, Any]]:
    """Each figure's name, title and caption, with the drawing as text under `svg`."""
    from covshift.progress import track
    from covshift.report.plots import house_style, to_svg

    exhibits = []
    for draw in track(console, label, draws, len(draws)):
        with house_style():
            exhibit = draw()
            exhibits.append(exhibit._asdict() | {"svg": to_svg(exhibit.figure, exhibit.title)})
    return exhibits
