"""Ours: drawing transitions by the ratio against multiplying the loss by it."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import RULE, headline, judge, say

BASELINE = "reweight"
RESAMPLED = "resample (paper)"

EXPERIMENT = Comparison(
    name="reweighting",
    aliases=(),
    title="Resampling or reweighting",
    claim="Drawing transitions by c scores more than multiplying the loss by c.",
    paper=(
        "Multiplicatively reweighting the loss hurt performance in initial experiments, likely due to larger "
        "gradient variance; so the paper resamples."
    ),
    games=ONE_GAME,
    arms=every_scale(
        (
            Arm("no correction", "c51"),
            Arm(BASELINE, "c51-corrected", {"priority": "uniform", "correction": "reweight"}),
            Arm(RESAMPLED, "c51-corrected"),
            Arm("resample by c·ρ", "c51-corrected", {"priority": "ratio-rho"}),
        )
    ),
    seeds={"paper": 5, "small": 3, "smoke": 1},
    rule=RULE
    + "The claim holds if the interval of resampling against reweighting is above ½, and does not hold if it is below.",
    analyze=lambda results: analyze(results),
)


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves, and P(resampling beats reweighting)."""
    better = results.improvement(RESAMPLED, BASELINE)
    return {
        "verdict": judge([better], results.seeds),
        "found": f"P(resampling beats reweighting) = {say(better)}.",
        "headline": headline(better, f"P(better than {BASELINE})", RESAMPLED),
        "table": results.score_table(BASELINE),
        "panels": results.score_panels(),
    }
