"""Maps of d_μ, d_π and c on four rooms."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.image import AxesImage

from covshift.experiments.theory.figures import Exhibit
from covshift.report.plots import panels
from covshift.theory.examples import four_rooms
from covshift.theory.examples.grids import FOUR_ROOMS, cells
from covshift.validation import Vector


def draw() -> Exhibit:
    """Where each policy is, and how c grows as γ̂ does."""
    problem = four_rooms()
    figure, axes = panels(6, width=12.5, height=2.7)
    for panel, (title, d) in zip(
        axes, {"d_μ": problem.d_mu, "d_π": problem.d_pi}.items(), strict=False
    ):
        image = draw_map(panel, d, title, "viridis", LogNorm(1e-5, 0.2))
    figure.colorbar(image, ax=axes[:2], shrink=0.7)
    for panel, gamma in zip(axes[2:], (0.9, 0.99, 0.999, 1.0), strict=True):
        image = draw_map(
            panel, problem.c_star(gamma), f"c at γ̂ = {gamma:g}", "RdBu_r", LogNorm(0.01, 100)
        )
    figure.colorbar(image, ax=axes[2:], shrink=0.7)
    return Exhibit(
        "rooms",
        "What does c look like?",
        "Four rooms, with the start S at the lower left and the goal G at the lower right, which leads back to the start. "
        "μ is uniform and goes everywhere; π walks to the goal and keeps to its path. c is 1 (white) for γ̂ = 0; as γ̂ grows, states that π "
        "visits more than μ turn red and states it avoids turn blue, first locally, then over the whole "
        "map. Colors are logarithmic and end at the scale's limits.",
        figure,
    )


def draw_map(axes: Axes, values: Vector, title: str, colors: str, norm: LogNorm) -> AxesImage:
    """A number for each cell of the four rooms, with start and goal marked."""
    rows, columns = cells(FOUR_ROOMS).T
    grid = np.full((rows.max() + 2, columns.max() + 2), np.nan)
    grid[rows, columns] = np.clip(values, norm.vmin, norm.vmax)
    image = axes.imshow(grid, cmap=colors, norm=norm)
    axes.set_facecolor("0.85")
    lines = FOUR_ROOMS.strip("\n").split("\n")
    for letter in "SG":
        (place,) = [(k, line.index(letter)) for k, line in enumerate(lines) if letter in line]
        box = {
            "boxstyle": "circle,pad=0.12",
            "facecolor": "white",
            "edgecolor": "none",
            "alpha": 0.85,
        }
        axes.text(
            place[1],
            place[0],
            letter,
            ha="center",
            va="center",
            fontsize=6,
            weight="bold",
            bbox=box,
        )
    axes.set_title(title)
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    return image
