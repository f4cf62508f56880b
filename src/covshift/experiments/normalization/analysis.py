"""Which weights help, and which runs diverge."""

from __future__ import annotations

from typing import Any

from covshift.experiments.results import FEWEST_SEEDS, Results, headline, say

BASELINE = "no correction"


def analyze(results: Results) -> dict[str, Any]:
    """Scores, the mean c of each run, and those that diverged."""
    (game,) = results.games
    weights = {
        arm.label: float(arm.leaves["normalization_weight"])
        for arm in results.arms
        if arm.label != BASELINE
    }
    better = {label: results.improvement(label, BASELINE) for label in weights}
    diverged = {
        label: sum(run.status()["status"] == "diverged" for run in results.of(game, label))
        for label in weights
    }
    small = {label: better[label] for label, weight in weights.items() if 0 < weight <= 0.01}
    best = max(small, key=lambda label: (small[label].low, small[label].value))
    largest = max(weights, key=weights.__getitem__)
    helps = any(estimate.low > 0.5 for estimate in small.values())
    harms = all(estimate.high < 0.5 for estimate in small.values())
    verdict = "not enough data"
    enough = results.seeds >= FEWEST_SEEDS
    if enough and helps and diverged[largest]:
        verdict = "holds"
    elif enough and harms and not any(diverged.values()):
        verdict = "does not hold"
    said = "; ".join(
        f"{label}: {say(estimate)}, {diverged[label]} diverged"
        for label, estimate in better.items()
    )
    labels = list(weights)
    return {
        "verdict": verdict,
        "found": f"Probability of beating no correction, and runs that diverged: {said}.",
        "headline": headline(small[best], f"P(better than {BASELINE})", best),
        "table": results.score_table(BASELINE),
        "panels": [
            *results.score_panels(),
            results.panel(game, "mean_ratio", "mean c over the data (Figure 6)", labels),
        ],
    }
