"""The figures of the demo's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.data.store import Store
from covshift.experiments.frames import SampledRatios
from covshift.report.pictures import picture_uri
from covshift.report.plots import COLORS, house_style, panels, to_svg
from covshift.report.statistics import Curve

SHOWN = 12
"""Frames of each gallery."""


def draw_curves(curves: Mapping[str, Sequence[Curve]], random_score: float) -> str:
    """The score of every seed against updates, with the mean over seeds, for each agent."""
    with house_style():
        figure, (axes,) = panels(1, height=3.6)
        for color, (title, runs) in zip(COLORS, curves.items(), strict=False):
            for run in runs:
                axes.plot(run.x, run.y, color=color, alpha=0.35, linewidth=0.9)
            length = min(len(run.y) for run in runs)  # a run that diverged stops early
            mean = np.mean([np.asarray(run.y)[:length] for run in runs], axis=0)
            axes.plot(runs[0].x[:length], mean, color=color, label=title, linewidth=2.2)
        axes.axhline(
            random_score, color="#5b6478", linestyle="--", linewidth=1, label="random policy"
        )
        axes.set(xlabel="updates", ylabel="score (mean of an evaluation)", title="Evaluation score")
        axes.legend(loc="upper left")
        return to_svg(figure, "Score of both agents against updates")


def draw_histogram(ratio: NDArray[np.float64]) -> str:
    """How the learned ratio is distributed over states of the data."""
    with house_style():
        figure, (axes,) = panels(1, height=3.0)
        axes.hist(ratio, bins=80, color=COLORS[0])
        axes.axvline(float(ratio.mean()), color=COLORS[1], linestyle="--", label="mean")
        axes.axvline(
            1.0, color="#1d2433", linestyle=":", label="1: as often under π as in the data"
        )
        axes.set(xlabel="c(s)", ylabel="states", yscale="log")
        axes.set_title("Learned ratio of states of the data")
        axes.legend()
        return to_svg(figure, "Histogram of the learned ratio")


def gallery(store: Store, sample: SampledRatios, order: NDArray[np.int64]) -> list[dict[str, Any]]:
    """The first states in this order whose pictures differ."""
    frames: dict[bytes, dict[str, Any]] = {}
    tried = order[: 40 * SHOWN]
    for index, state in zip(tried, store.states(sample.rows[tried]), strict=True):
        if len(frames) < SHOWN and state.tobytes() not in frames:
            shown = {"ratio": float(sample.ratio[index]), "uri": picture_uri(state)}
            frames[state.tobytes()] = shown
    return list(frames.values())
