"""E_π[c] against γ̂."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.experiments.results import FEWEST_SEEDS, LAST, SEED, Results, column_of, say
from covshift.report.statistics import bootstrap_estimate, interquartile_mean


def analyze(results: Results) -> dict[str, Any]:
    """Curves of E_π[c] and E_μ[c], and how their ends order."""
    (game,) = results.games
    ends, rows = [], []
    for arm in results.arms:
        runs = results.of(game, arm.label)
        under_pi = np.array([column_of(run, "mean_ratio_pi")[1][-LAST:].mean() for run in runs])
        under_mu = np.array([column_of(run, "mean_ratio")[1][-LAST:].mean() for run in runs])
        ends.append(bootstrap_estimate(under_pi, np.random.default_rng(SEED)))
        gain = float(interquartile_mean(under_pi / under_mu))
        rows.append(
            [
                *(arm.label, say(ends[-1]), f"{float(interquartile_mean(under_mu)):.3f}"),
                *(f"{gain:.2f}", str(len(runs))),
            ]
        )
    verdict = "not enough data"
    if results.seeds >= FEWEST_SEEDS and ends[-1].high < ends[0].low:
        verdict = "holds"
    elif results.seeds >= FEWEST_SEEDS and ends[-1].low > ends[0].high:
        verdict = "does not hold"
    said = ", ".join(f"{row[0]}: {row[1]}" for row in rows)
    return {
        "verdict": verdict,
        "found": f"E_π[c] at the end: {said}.",
        "table": {"columns": ["arm", "E_π[c]", "E_μ[c]", "E_π[c]/E_μ[c]", "runs"], "rows": rows},
        "panels": [
            results.panel(game, "mean_ratio_pi", "mean c in episodes of π"),
            results.panel(game, "mean_ratio", "mean c over the data"),
        ],
    }
