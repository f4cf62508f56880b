"""E_π[c] against γ̂."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.experiments.results import LAST, Results, column_of
from covshift.report.statistics import interquartile_mean


def analyze(results: Results) -> dict[str, Any]:
    """Curves of E_π[c] and E_μ[c], and how their ends order."""
    (game,) = results.games
    middles, rows = [], []
    for arm in results.arms:
        runs = results.of(game, arm.label)
        under_pi = np.array([column_of(run, "mean_ratio_pi")[1][-LAST:].mean() for run in runs])
        under_mu = np.array([column_of(run, "mean_ratio")[1][-LAST:].mean() for run in runs])
        middles.append(interquartile_mean(under_pi))
        gain = interquartile_mean(under_pi / under_mu)
        rows.append(
            [
                *(arm.label, f"{middles[-1]:.3f}", f"{interquartile_mean(under_mu):.3f}"),
                *(f"{gain:.2f}", str(len(runs))),
            ]
        )
    steps = np.diff(middles)
    verdict = "not enough data"
    if (steps < 0).all():
        verdict = "holds"
    elif (steps > 0).all():
        verdict = "does not hold"
    ends = ", ".join(f"{row[0]}: {row[1]}" for row in rows)
    return {
        "verdict": verdict,
        "found": f"E_π[c] at the end: {ends}.",
        "table": {"columns": ["arm", "E_π[c]", "E_μ[c]", "E_π[c]/E_μ[c]", "runs"], "rows": rows},
        "panels": [
            results.panel(game, "mean_ratio_pi", "mean c in episodes of π"),
            results.panel(game, "mean_ratio", "mean c over the data"),
        ],
    }
