"""The corrected agent against the four arms that do not use the ratio."""

from __future__ import annotations

from typing import Any

from covshift.experiments.results import Results, headline, judge, say, weakest
from covshift.report.statistics import interquartile_mean

BASELINE = "no correction"
CORRECTED = "corrected, γ̂ = 0.999"


def analyze(results: Results) -> dict[str, Any]:
    """Four learning curves and the corrected agent's end as a line."""
    others = [arm.label for arm in results.arms if arm.label != CORRECTED]
    against = {label: results.improvement(CORRECTED, label) for label in others}
    panels = []
    for game, scores in zip(results.games, results.scores(CORRECTED).T, strict=True):
        panel = results.panel(game, "score", "score", others)
        panel["lines"] = [
            {"label": "random policy", "y": results.random_score(game)},
            {"label": f"{CORRECTED}, at the end", "y": float(interquartile_mean(scores))},
        ]
        panels.append(panel)
    worst = weakest(against)
    said = "; ".join(f"{label}: {say(estimate)}" for label, estimate in against.items())
    return {
        "verdict": judge(list(against.values()), results.seeds),
        "found": f"Probability that the corrected agent beats each arm: {said}.",
        "headline": headline(against[worst], f"P(better than {worst}), all games", CORRECTED),
        "table": results.score_table(BASELINE),
        "panels": panels,
    }
