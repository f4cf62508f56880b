"""Figure 4: the mean ratio that the agent predicts in its own episodes, for each discount γ̂."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ONE_GAME, Comparison
from covshift.experiments.comparison.results import Results, interval_of
from covshift.experiments.comparison.verdicts import Scores, headline, judge, say, say_number
from covshift.experiments.ratio_discount import DISCOUNTS, corrected_arms
from covshift.report.contrasts import compare
from covshift.report.statistics import interquartile_mean

ARMS = corrected_arms(DISCOUNTS, 0.02)
"""Runs of Figure 1, left."""

SMALLEST, LARGEST = ARMS[0].label, ARMS[-1].label

EXPERIMENT = Comparison(
    name="mean_ratio",
    aliases=("figure-4",),
    title="The mean ratio under the learned policy",
    claim="The mean predicted ratio in the agent's own episodes is smaller with γ̂ = 0.9999 than with γ̂ = 0.9.",
    paper=(
        "The average predicted ratio in evaluation episodes decreases towards 0 as γ̂ grows. In a continuing problem, and "
        "with restarts, the exact E_π[c] is at least E_μ[c] = 1 if μ covers what π does (B3), so that a mean near 0 is an "
        "underestimate. Where visits are counted with γ̂ < 1, as here, that order is usual but can fail."
    ),
    games=ONE_GAME,
    arms={"paper": ARMS, "small": ARMS, "smoke": ARMS},
    seeds={"paper": 5, "small": 10, "smoke": 1},
    rule=(
        "The value of a run is its mean of E_π[c] over the last 3 evaluations. The claim holds if the values with the "
        "largest γ̂ are smaller than those with the smallest, by an exact permutation test with a one-sided p-value of at "
        "most 2.5 %, and does not hold if they are larger by such a test. Otherwise, and with fewer than three seeds, the "
        "data do not decide."
    ),
    analyze=lambda results: analyze(results),
    differences=("Episodes follow π itself (ε = 0.1), the policy whose ratio c is.",),
)


def verdict(means: Scores) -> str:
    """The rule above, from E_π[c] of each run by arm."""
    return judge([compare(means[SMALLEST], means[LARGEST])], len(means[LARGEST]))


def analyze(results: Results) -> dict[str, Any]:
    """Curves of E_π[c] and E_μ[c], and their final values by γ̂."""
    (game,) = results.games
    means, rows = {}, []
    for arm in results.arms:
        under_pi = results.endings(game, arm.label, "mean_ratio_pi")
        under_mu = results.endings(game, arm.label, "mean_ratio")
        means[arm.label] = under_pi
        _, bound = results.possible_means(game, arm.label)
        gain = float(interquartile_mean(under_pi / under_mu))
        rows.append(
            [
                *(
                    arm.label,
                    say(interval_of(under_pi)),
                    say_number(float(interquartile_mean(under_mu))),
                ),
                *(say_number(bound), f"{gain:.2f}", str(len(under_mu))),
            ]
        )
    said = ", ".join(f"{row[0]}: {row[1]}" for row in rows)
    return {
        "verdict": verdict(means),
        "found": f"E_π[c] at the end: {said}. Probability that it is larger with {SMALLEST} than with {LARGEST}: "
        f"{say(compare(means[SMALLEST], means[LARGEST]))}.",
        "headline": headline(interval_of(means[LARGEST]), "E_π[c]", LARGEST),
        "table": {
            "columns": ["arm", "E_π[c]", "E_μ[c]", "largest possible", "E_π[c]/E_μ[c]", "runs"],
            "rows": rows,
        },
        "panels": [
            results.panel(game, "mean_ratio_pi", "mean c in episodes of π"),
            results.panel(game, "mean_ratio", "mean c over the data"),
        ],
    }
