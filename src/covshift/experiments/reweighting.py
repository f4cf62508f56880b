"""Ours: drawing transitions by the ratio against multiplying the loss by it."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import RULE, Scores, headline, judge, say
from covshift.report.contrasts import compare

BASELINE = "reweight"
RAW = "reweight by raw c"
RESAMPLED = "resample (paper)"

EXPERIMENT = Comparison(
    name="reweighting",
    aliases=(),
    title="Resampling or reweighting",
    claim="Drawing transitions by c scores more than multiplying the loss by c over its mean.",
    paper=(
        "Multiplicatively reweighting the loss hurt performance in initial experiments, likely due to larger "
        "gradient variance; so the paper resamples."
    ),
    games=ONE_GAME,
    arms=every_scale(
        (
            Arm("no correction", "c51"),
            Arm(BASELINE, "c51-corrected", {"priority": "uniform", "correction": "reweight-mean"}),
            Arm(RAW, "c51-corrected", {"priority": "uniform", "correction": "reweight"}),
            Arm(RESAMPLED, "c51-corrected"),
            Arm("resample by c·ρ", "c51-corrected", {"priority": "ratio-rho"}),
        )
    ),
    seeds={"paper": 5, "small": 5, "smoke": 1},
    rule=RULE
    + "The claim holds if resampling is better than reweighting by c over its mean, and does not hold if it is worse. Raw c "
    "also multiplies the loss by its mean, so that a larger step could be the cause: that arm is shown and not judged.",
    analyze=lambda results: analyze(results),
    differences=(
        "The paper does not say whether it divided by the mean ratio; both readings are arms.",
    ),
)


def verdict(scores: Scores) -> str:
    """The rule above."""
    return judge([compare(scores[RESAMPLED], scores[BASELINE])], len(scores[BASELINE]))


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves, and P(resampling beats reweighting)."""
    better = results.improvement(RESAMPLED, BASELINE)
    return {
        "verdict": verdict(results.all_scores()),
        "found": f"P(resampling beats reweighting by c over its mean) = {say(better)}; by raw c: "
        f"{say(results.improvement(RESAMPLED, RAW))}.",
        "headline": headline(better, f"P(better than {BASELINE})", RESAMPLED),
        "table": results.score_table(BASELINE),
        "panels": results.score_panels(),
    }
