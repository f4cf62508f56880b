"""Which distribution the ratio should be learned from; under 1/c weights it always contracts (B1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from covshift.experiments.theory.figures import Exhibit
from covshift.experiments.theory.survey import (
    ESTIMATE_ERRORS,
    GENERATORS,
    RATIO_DISCOUNTS,
    WEIGHTINGS,
    SurveyRow,
)
from covshift.report.plots import COLORS, legend_below, panels
from covshift.validation import Dense


def draw(rows: Sequence[SurveyRow]) -> Exhibit:
    """Shares of unstable problems, the collapse of scale, accuracy, and estimated weights."""
    unstable = _table(rows, "radius", _unstable)
    scales, distances = _table(rows, "mean_ratio", _median), _table(rows, "distance", _median)
    unstable_estimated = _table(rows, "estimated_radius", _unstable)
    figure, (shares, scale, accuracy, estimated) = panels(4, width=12.5)
    ticks = np.arange(len(RATIO_DISCOUNTS))
    names = [str(gamma) for gamma in RATIO_DISCOUNTS]
    width = 0.8 / (len(WEIGHTINGS) * len(GENERATORS))
    for g, (generator, line, hatch) in enumerate(
        zip(GENERATORS, ("-", "--"), ("", "//"), strict=True)
    ):
        # Only the first generator is in the legends.
        hidden = "_" if g else ""
        for k, weighting in enumerate(WEIGHTINGS):
            shares.bar(
                ticks - 0.4 + width * (k * len(GENERATORS) + g + 0.5),
                [unstable[generator][gamma][k] for gamma in RATIO_DISCOUNTS],
                width,
                color=COLORS[k],
                hatch=hatch,
                edgecolor="white",
                linewidth=0.3,
                label=hidden + weighting,
            )
        for axes, medians in ((scale, scales), (accuracy, distances)):
            for k, (label, color) in enumerate((("uniform", COLORS[0]), ("1/c", COLORS[3]))):
                values = [medians[generator][gamma][k] for gamma in RATIO_DISCOUNTS]
                axes.plot(ticks, values, line, marker="o", color=color, label=hidden + label)
        for index, gamma in enumerate(RATIO_DISCOUNTS[1:], start=1):
            estimated.plot(
                [str(error) for error in ESTIMATE_ERRORS],
                unstable_estimated[generator][gamma],
                line,
                marker="o",
                color=COLORS[index],
                label=f"{hidden}γ̂ = {gamma}",
            )
    for axes in (shares, scale, accuracy):
        axes.set_xticks(ticks, names)
        axes.set_xlabel("γ̂")
    shares.set(title="Unstable problems", ylabel="% with spectral radius ≥ 1")
    scale.set(title="Scale (with a bias)", ylabel="median E_μ[ĉ]", ylim=(0, 1.1))
    accuracy.set(title="Accuracy", ylabel="median TV of the law ∝ ĉ from d̂_π")
    accuracy.set_ylim(bottom=0)
    estimated.set(title="Weights with errors", xlabel="σ of log-normal error in 1/c")
    estimated.set_ylabel("% with spectral radius ≥ 1")
    legend_below(shares, ncols=2)
    for axes in (scale, accuracy, estimated):
        legend_below(axes)

    def both(table: dict[str, dict[float, Dense]], k: int, form: str) -> str:
        """A column's numbers at γ̂ = 0.99 for the two generators."""
        return " and ".join(format(table[name][0.99][k], form) for name in GENERATORS)

    tabular = _table(rows, "source_tabular_radius", _unstable)
    caption = (
        f"{len(rows) // len(GENERATORS) // len(RATIO_DISCOUNTS)} problems from each of two generators, "
        f"{' and '.join(GENERATORS)} (plain and striped, solid and dashed): 6 states, "
        "3 actions, 2 normal features. At γ̂ = 0.99 the projected operator is unstable in "
        f"{both(unstable, 0, '.1f')} % of problems under uniform weights, in {both(unstable, 1, '.1f')} % if "
        f"transitions are drawn ∝ c at the source, in {both(unstable, 2, '.1f')} % if they are at the destination, "
        f"and in {both(unstable, 3, '.1f')} % under 1/c weights, which always contract (B1). "
        f"Drawn at the source, even the tabular operator expands in {both(tabular, 0, '.0f')} %. "
        f"1/c weights have a price: the scale collapses (median E_μ[ĉ] {both(scales, 1, '.2f')} at "
        "γ̂ = 0.99, where uniform weights with a bias keep 1), and the sampling distribution is no more accurate: its "
        f"median distance from d̂_π is {both(distances, 1, '.3f')}, under uniform weights "
        f"{both(distances, 0, '.3f')}. The theorem tolerates errors of about 1 % in the weights; with log-normal "
        f"errors of 10 %, {both(unstable_estimated, ESTIMATE_ERRORS.index(0.1), '.1f')} % of problems are unstable."
    )
    return Exhibit(
        "weighting", "Which distribution should the ratio be learned from?", caption, figure
    )


def _table(
    rows: Sequence[SurveyRow], field: str, summarize: Callable[[Dense], Dense]
) -> dict[str, dict[float, Dense]]:
    """By generator and γ̂, a summary of each column of a field; it is given problems × columns."""

    def summary(name: str, gamma: float) -> Dense:
        chosen = [row for row in rows if (row.generator, row.ratio_discount) == (name, gamma)]
        return summarize(np.array([np.atleast_1d(getattr(row, field)) for row in chosen]))

    return {name: {gamma: summary(name, gamma) for gamma in RATIO_DISCOUNTS} for name in GENERATORS}


def _unstable(radii: Dense) -> Dense:
    """The percentage of problems whose spectral radius is at least 1."""
    return np.asarray(100 * (radii >= 1).mean(axis=0))


def _median(numbers: Dense) -> Dense:
    return np.asarray(np.median(numbers, axis=0))
