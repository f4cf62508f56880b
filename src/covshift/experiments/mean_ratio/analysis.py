"""E_π[c] against γ̂."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.data.store import Store
from covshift.experiments.results import FEWEST_SEEDS, SEED, Results, headline, say
from covshift.records import possible_means
from covshift.report.statistics import bootstrap_estimate, interquartile_mean


def analyze(results: Results) -> dict[str, Any]:
    """Curves of E_π[c] and E_μ[c], and how their ends order."""
    (game,) = results.games
    initial_share = Store.open(results.data[game]).initial_share()
    ends, rows = [], []
    for arm in results.arms:
        under_pi = results.endings(game, arm.label, "mean_ratio_pi")
        under_mu = results.endings(game, arm.label, "mean_ratio")
        ends.append(bootstrap_estimate(under_pi, np.random.default_rng(SEED)))
        _, bound = possible_means(results.of(game, arm.label)[0].config().ratio, initial_share)
        gain = float(interquartile_mean(under_pi / under_mu))
        rows.append(
            [
                *(arm.label, say(ends[-1]), f"{float(interquartile_mean(under_mu)):.3g}"),
                *(f"{bound:.3g}", f"{gain:.2f}", str(len(under_mu))),
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
