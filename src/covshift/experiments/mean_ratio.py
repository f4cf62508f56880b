"""Figure 4: the mean ratio that the agent predicts in its own episodes, for each discount γ̂."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ONE_GAME, Comparison
from covshift.experiments.comparison.results import Results, interval_of
from covshift.experiments.comparison.verdicts import decide, headline, say
from covshift.experiments.ratio_discount import DISCOUNTS, corrected_arms
from covshift.report.statistics import Estimate, interquartile_mean

ARMS = corrected_arms(DISCOUNTS, 0.02)
"""Runs of Figure 1, left."""

EXPERIMENT = Comparison(
    name="mean_ratio",
    aliases=("figure-4",),
    title="The mean ratio under the learned policy",
    claim="The mean predicted ratio in the agent's own episodes falls towards 0 as γ̂ grows.",
    paper=(
        "The average predicted ratio in evaluation episodes decreases with γ̂. If μ covers what π does, the true E_π[c] "
        "is at least E_μ[c] (B3), so that a mean near 0 is an underestimate."
    ),
    games=ONE_GAME,
    arms={"paper": ARMS, "small": ARMS, "smoke": ARMS},
    seeds={"paper": 5, "small": 5, "smoke": 1},
    rule=(
        "The value of a run is its mean of E_π[c] over the last 3 evaluations. The claim holds if the interquartile "
        "mean of the largest γ̂ is below that of the smallest with 95 % bootstrap intervals that do not overlap, and does "
        "not hold if it is above with such intervals. Otherwise, and with fewer than three seeds, the data do not decide."
    ),
    analyze=lambda results: analyze(results),
    differences=("Episodes follow π itself (ε = 0.1), the policy whose ratio c is.",),
)


def verdict(smallest: Estimate, largest: Estimate, seeds: int) -> str:
    """The rule above, from E_π[c] with the smallest and with the largest γ̂."""
    return decide(seeds, holds=largest.high < smallest.low, fails=largest.low > smallest.high)


def analyze(results: Results) -> dict[str, Any]:
    """Curves of E_π[c] and E_μ[c], and their final values by γ̂."""
    (game,) = results.games
    ends, rows = [], []
    for arm in results.arms:
        under_pi = results.endings(game, arm.label, "mean_ratio_pi")
        under_mu = results.endings(game, arm.label, "mean_ratio")
        ends.append(interval_of(under_pi))
        _, bound = results.possible_means(game, arm.label)
        gain = float(interquartile_mean(under_pi / under_mu))
        rows.append(
            [
                *(arm.label, say(ends[-1]), f"{float(interquartile_mean(under_mu)):.3g}"),
                *(f"{bound:.3g}", f"{gain:.2f}", str(len(under_mu))),
            ]
        )
    said = ", ".join(f"{row[0]}: {row[1]}" for row in rows)
    return {
        "verdict": verdict(ends[0], ends[-1], results.seeds),
        "found": f"E_π[c] at the end: {said}.",
        "headline": headline(ends[-1], "E_π[c]", results.arms[-1].label),
        "table": {
            "columns": ["arm", "E_π[c]", "E_μ[c]", "largest possible", "E_π[c]/E_μ[c]", "runs"],
            "rows": rows,
        },
        "panels": [
            results.panel(game, "mean_ratio_pi", "mean c in episodes of π"),
            results.panel(game, "mean_ratio", "mean c over the data"),
        ],
    }
