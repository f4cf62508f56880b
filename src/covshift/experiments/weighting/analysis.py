"""Stability and score of three weightings."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.experiments.results import FEWEST_SEEDS, Results, headline, say

BASELINE = "uniform (paper)"


def analyze(results: Results) -> dict[str, Any]:
    """Scores, mean ratios, effective shares, and how the ratio's error ends."""
    (game,) = results.games
    ends, diverged = {}, {}
    for arm in results.arms:
        runs = results.of(game, arm.label)
        ends[arm.label] = float(np.median(results.endings(game, arm.label, "ratio_loss")))
        diverged[arm.label] = sum(run.status()["status"] == "diverged" for run in runs)

    def unstable(label: str) -> bool:
        return diverged[label] > 0 or ends[label] > 2 * ends[BASELINE]

    better = results.improvement("1/c", BASELINE)
    verdict = "not enough data"
    enough = results.seeds >= FEWEST_SEEDS
    if enough and (not unstable("prioritized") or unstable("1/c")):
        verdict = "does not hold"
    elif enough and better.high >= 0.5:
        verdict = "holds"
    said = "; ".join(
        f"{label}: squared error {ends[label]:.3g}, {diverged[label]} diverged" for label in ends
    )
    return {
        "verdict": verdict,
        "found": f"{said}. P(1/c beats uniform) = {say(better)}.",
        "headline": headline(better, f"P(better than {BASELINE})", "1/c"),
        "table": results.score_table(BASELINE),
        "panels": [
            *results.score_panels(),
            results.panel(game, "mean_ratio", "mean c over the data"),
            results.panel(game, "effective_share", "ESS/N"),
            results.panel(game, "ratio_loss", "squared ratio error"),
        ],
    }
