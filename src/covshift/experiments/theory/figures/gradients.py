"""Bias and variance of estimates of the normalization loss's gradient."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from covshift.experiments.theory.claims.normalization import linear_case
from covshift.experiments.theory.figures import Exhibit
from covshift.report.plots import COLORS, legend_below, panels


def draw(seed: int = 0, cases: int = 200) -> Exhibit:
    """The single-sample estimate's bias, and the two unbiased ones' standard error by batch size."""
    rng = np.random.default_rng(seed)
    drawn = [linear_case(rng) for _ in range(cases)]
    figure, (left, right) = panels(2)

    exact = np.concatenate([case.gradient() for case in drawn])
    single = np.concatenate([case.single_sample() for case in drawn])
    averaged = []
    for case in drawn:
        states, probabilities = replace(case, batch_size=2).batches()
        averaged.append(probabilities @ replace(case, batch_size=2).averaged(states))
    limit = float(np.quantile(np.abs(exact), 0.99))
    left.plot([-limit, limit], [-limit, limit], color="0.7", linewidth=1, zorder=0)
    left.scatter(exact, single, s=8, alpha=0.5, color=COLORS[1], label="one sample: E[(c - 1)∇c]")
    left.scatter(exact, np.concatenate(averaged), s=8, color=COLORS[0], label="Theorem 5, m = 2")
    left.set(xlim=(-limit, limit), ylim=(-limit * 2, limit * 2))
    left.set(title="Expected estimate", xlabel="true gradient", ylabel="mean of the estimate")
    legend_below(left)

    sizes = range(2, 7)
    ratios: list[float] = []
    errors: dict[str, list[float]] = {"one-sided": [], "Theorem 5's average": []}
    for size in sizes:
        pairs = []
        for case in (replace(case, batch_size=size) for case in drawn[:40]):
            states, probabilities = case.batches()
            pairs.append(
                (
                    case.variance(case.one_sided(states), probabilities),
                    case.variance(case.averaged(states), probabilities),
                )
            )
        one_sided, both = np.median(np.sqrt(pairs), axis=0)
        errors["one-sided"].append(float(one_sided))
        errors["Theorem 5's average"].append(float(both))
        ratios.append(float(np.median([a / b for a, b in pairs])))
    for (label, values), color in zip(errors.items(), (COLORS[1], COLORS[0]), strict=True):
        right.plot(list(sizes), values, "o-", color=color, label=label)
    right.set(title="Standard error", xlabel="batch size m", ylabel="median over cases")
    right.set_ylim(bottom=0)
    right.set_xticks(list(sizes))
    legend_below(right)
    return Exhibit(
        "gradients",
        "Can the normalization loss be minimized from samples?",
        "Left: on random cases, the product of one sample with itself does not average to the gradient "
        "(the double-sampling problem); Theorem 5's estimate does, exactly. Right: the one-sided estimate "
        "is unbiased too, but using each sample in both roles divides its variance by "
        f"{ratios[0]:.1f} at m = 2 and {ratios[-1]:.1f} at m = 6 (medians).",
        figure,
    )
