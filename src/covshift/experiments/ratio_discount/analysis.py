"""Which discounts beat no correction."""

from __future__ import annotations

from typing import Any

from covshift.experiments.results import Results, headline, judge, say, weakest

BASELINE = "no correction"


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves, and P(better than no correction) of each discount."""
    better = {
        arm.label: results.improvement(arm.label, BASELINE)
        for arm in results.arms
        if arm.label != BASELINE
    }
    judged = {
        arm.label: better[arm.label]
        for arm in results.arms
        if arm.label in better
        and arm.leaves["ratio_discount"] <= 0.999
        and arm.leaves["ratio_loss_weight"] == 0.02
    }
    worst = weakest(judged)
    said = "; ".join(f"{label}: {say(estimate)}" for label, estimate in better.items())
    return {
        "verdict": judge(list(judged.values()), results.seeds),
        "found": f"Probability of beating no correction: {said}.",
        "headline": headline(judged[worst], f"P(better than {BASELINE})", worst),
        "table": results.score_table(BASELINE),
        "panels": results.score_panels(),
    }
