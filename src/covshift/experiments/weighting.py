"""Ours: from which states, and with which weights, the ratio should be learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import (
    RULE,
    Scores,
    all_shown,
    any_shown,
    decide,
    headline,
    say,
)
from covshift.report.contrasts import compare

BASELINE = "uniform (paper)"
PRIORITIZED = "prioritized"
INVERSE = "1/c"

FACTOR = 2.0
"""A ratio is unstable if its calibration error is more than this many times that of uniform batches."""

MARGIN = 0.9
"""No less means more than this share of the score with uniform batches."""

EXPERIMENT = Comparison(
    name="weighting",
    aliases=(),
    title="From which states the ratio is learned",
    claim="Learning the ratio from prioritized batches is unstable; 1/c weighting is not, and scores no less.",
    paper=(
        "Learning the ratio with prioritized sampling led to stability issues; the paper leaves open from which "
        "distribution to learn it. B1 proves that 1/c weighting is a contraction, with exact weights and features."
    ),
    games=ONE_GAME,
    arms=every_scale(
        (
            Arm(BASELINE, "c51-corrected"),
            Arm(PRIORITIZED, "c51-corrected", {"ratio_batch": "prioritized"}),
            Arm(INVERSE, "c51-corrected", {"ratio_weighting": "inverse"}),
            Arm("1/c, positive head, both refreshed (c51-dual)", "c51-dual"),
            Arm("matching loss, uniform (c51-matched)", "c51-matched"),
        )
    ),
    seeds={"paper": 5, "small": 5, "smoke": 1},
    rule=RULE
    + "The error of a run is its calibration error, the largest relative error of E_μ[c f] against episodes of π (a column "
    "of metrics.csv, the same for all arms; mean of the last 3), and infinite if the run diverged. A way to learn the ratio "
    "is unstable if its errors are larger than twice those of uniform batches, and stable if they are smaller than that, "
    "both by the exact test. Scores are no less if they are better than 90 % of those with uniform batches. The claim holds "
    "if prioritized is unstable, 1/c is stable, and 1/c scores no less. It does not hold if prioritized is stable, 1/c is "
    "unstable, or 1/c scores worse (one of three comparisons is enough).",
    analyze=lambda results: analyze(results),
)


def verdict(scores: Scores, errors: Scores) -> str:
    """The rule above.

    Args:
        scores: final scores by arm.
        errors: calibration errors by arm; infinite for a run that diverged, NaN where there is none.
    """
    prioritized, inverse = (
        compare(errors[label], FACTOR * errors[BASELINE]) for label in (PRIORITIZED, INVERSE)
    )
    no_less = compare(scores[INVERSE], MARGIN * scores[BASELINE])
    less = compare(scores[INVERSE], scores[BASELINE])
    return decide(
        len(scores[BASELINE]),
        holds=all_shown([prioritized.better, inverse.worse, no_less.better]),
        fails=any_shown([prioritized.worse, inverse.better, less.worse]),
    )


def analyze(results: Results) -> dict[str, Any]:
    """Scores, mean ratios, effective shares, and the ratio's error at the end."""
    (game,) = results.games
    labels = [arm.label for arm in results.arms]
    errors = {
        label: np.where(
            [run.diverged for run in results.of(game, label)],
            np.inf,
            results.endings(game, label, "calibration_error"),
        )
        for label in labels
    }
    better = results.improvement(INVERSE, BASELINE)
    said = "; ".join(
        f"{label}: calibration error {np.median(errors[label]):.3g}, {results.diverged(game, label)} diverged"
        for label in labels
    )
    return {
        "verdict": verdict(results.all_scores(), errors),
        "found": f"Medians over seeds: {said}. P(1/c beats uniform) = {say(better)}.",
        "headline": headline(better, f"P(better than {BASELINE})", INVERSE),
        "table": results.score_table(BASELINE),
        "panels": [
            *results.score_panels(),
            results.panel(game, "mean_ratio", "mean c over the data"),
            results.panel(game, "effective_share", "ESS/N"),
            results.panel(game, "calibration_error", "calibration error"),
        ],
    }
