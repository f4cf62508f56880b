"""B1: which distribution the ratio should be learned from."""

from __future__ import annotations

from collections.abc import Sequence

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

_STRIPES = ("", "//")


def draw(rows: Sequence[SurveyRow]) -> Exhibit:
    """Shares of unstable problems, the collapse of scale, accuracy, and estimated weights."""
    figure, (shares, scale, accuracy, estimated) = panels(4, width=12.5)
    by = {
        (name, gamma): [r for r in rows if (r.generator, r.ratio_discount) == (name, gamma)]
        for name in GENERATORS
        for gamma in RATIO_DISCOUNTS
    }
    width = 0.8 / (len(WEIGHTINGS) * len(GENERATORS))
    for g, name in enumerate(GENERATORS):
        for k, weighting in enumerate(WEIGHTINGS):
            heights = [
                100 * np.mean([row.radius[k] >= 1 for row in by[name, gamma]])
                for gamma in RATIO_DISCOUNTS
            ]
            at = np.arange(len(RATIO_DISCOUNTS)) - 0.4 + width * (k * len(GENERATORS) + g + 0.5)
            shares.bar(
                at,
                heights,
                width,
                color=COLORS[k],
                hatch=_STRIPES[g],
                edgecolor="white",
                linewidth=0.3,
                label=weighting if g == 0 else None,
            )
    shares.set_xticks(range(len(RATIO_DISCOUNTS)), [str(gamma) for gamma in RATIO_DISCOUNTS])
    shares.set(title="Unstable problems", xlabel="γ̂", ylabel="% with spectral radius ≥ 1")
    legend_below(shares, ncols=2)

    for g, name in enumerate(GENERATORS):
        line = ("-", "--")[g]
        for k, (label, color) in enumerate((("uniform", COLORS[0]), ("1/c", COLORS[3]))):
            means = [
                np.median([r.mean_ratio[k] for r in by[name, gamma]]) for gamma in RATIO_DISCOUNTS
            ]
            scale.plot(
                _ticks(), means, line, marker="o", color=color, label=label if g == 0 else None
            )
            distances = [
                np.median([r.distance[k] for r in by[name, gamma]]) for gamma in RATIO_DISCOUNTS
            ]
            accuracy.plot(
                _ticks(), distances, line, marker="o", color=color, label=label if g == 0 else None
            )
        for index, gamma in enumerate(RATIO_DISCOUNTS[1:], start=1):
            errors = [
                100 * np.mean([r.estimated_radius[k] >= 1 for r in by[name, gamma]])
                for k in range(len(ESTIMATE_ERRORS))
            ]
            estimated.plot(
                [str(error) for error in ESTIMATE_ERRORS],
                errors,
                line,
                marker="o",
                color=COLORS[index],
                label=f"γ̂ = {gamma}" if g == 0 else None,
            )
    for axes in (scale, accuracy):
        axes.set_xticks(_ticks(), [str(gamma) for gamma in RATIO_DISCOUNTS])
    scale.set(title="Scale (with a bias)", xlabel="γ̂", ylabel="median E_μ[ĉ]", ylim=(0, 1.1))
    accuracy.set(title="Accuracy", xlabel="γ̂", ylabel="median TV of the law ∝ ĉ from d̂_π")
    accuracy.set_ylim(bottom=0)
    estimated.set(title="Weights with errors", xlabel="σ of log-normal error in 1/c")
    estimated.set_ylabel("% with spectral radius ≥ 1")
    for axes in (scale, accuracy, estimated):
        legend_below(axes)
    return Exhibit(
        "weighting", "Which distribution should the ratio be learned from?", _text(by), figure
    )


def _ticks() -> list[int]:
    return list(range(len(RATIO_DISCOUNTS)))


def _text(by: dict[tuple[str, float], list[SurveyRow]]) -> str:
    def share(gamma: float, k: int) -> str:
        values = [100 * np.mean([r.radius[k] >= 1 for r in by[name, gamma]]) for name in GENERATORS]
        return " and ".join(f"{value:.1f} %" for value in values)

    tabular = [
        100 * np.mean([r.source_tabular_radius >= 1 for r in by[name, 0.99]]) for name in GENERATORS
    ]
    scale = [np.median([r.mean_ratio[1] for r in by[name, 0.99]]) for name in GENERATORS]
    distance = [
        [np.median([r.distance[k] for r in by[name, 0.99]]) for name in GENERATORS] for k in (0, 1)
    ]
    tenth = ESTIMATE_ERRORS.index(0.1)
    errors = [
        100 * np.mean([r.estimated_radius[tenth] >= 1 for r in by[name, 0.99]])
        for name in GENERATORS
    ]
    count = len(next(iter(by.values())))
    names = " and ".join(GENERATORS)
    return (
        f"{count} problems from each of two generators, {names} (plain and striped, solid and dashed): 6 states, "
        "3 actions, 2 normal features. At γ̂ = 0.99 the projected operator is unstable in "
        f"{share(0.99, 0)} of problems under uniform weights, {share(0.99, 1)} if transitions are drawn ∝ c "
        f"at the source, {share(0.99, 2)} at the destination, and {share(0.99, 3)} under 1/c, as B1 proves. "
        f"Drawn at the source, even the tabular operator expands in {tabular[0]:.0f} and {tabular[1]:.0f} %. "
        f"What 1/c does not give: its scale collapses (median E_μ[ĉ] {scale[0]:.2f} and {scale[1]:.2f} at "
        "γ̂ = 0.99, where uniform weights with a bias keep 1), and the sampling law is no more accurate: its median "
        f"distance from d̂_π is {distance[1][0]:.3f} and {distance[1][1]:.3f}, under uniform weights "
        f"{distance[0][0]:.3f} and {distance[0][1]:.3f}. The theorem tolerates errors of about 1 % in the weights; "
        f"with log-normal errors of 10 % {errors[0]:.1f} and {errors[1]:.1f} % of problems are unstable."
    )
