"""Ours: from which states, and with which weights, the ratio should be learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import RULE, decide, headline, say
from covshift.report.statistics import Estimate

BASELINE = "uniform (paper)"
PRIORITIZED = "prioritized"
INVERSE = "1/c"

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
        )
    ),
    seeds={"paper": 5, "small": 5, "smoke": 1},
    rule=RULE
    + "Unstable means that a run diverged or that the median squared ratio error over seeds ends more than twice as high "
    "as with uniform batches. The claim holds if prioritized is unstable, 1/c is not, and the interval of 1/c against "
    "uniform reaches ½ or more; it does not hold if prioritized is stable or 1/c is unstable.",
    analyze=lambda results: analyze(results),
)


def is_unstable(diverged: int, error: float, baseline_error: float) -> bool:
    """Whether a run diverged, or the squared ratio error ends more than twice as high as the baseline's."""
    return diverged > 0 or error > 2 * baseline_error


def verdict(
    *, prioritized_is_unstable: bool, inverse_is_unstable: bool, better: Estimate, seeds: int
) -> str:
    """The rule above; `better` is P(1/c beats uniform)."""
    fails = not prioritized_is_unstable or inverse_is_unstable
    return decide(seeds, holds=not fails and better.high >= 0.5, fails=fails)


def analyze(results: Results) -> dict[str, Any]:
    """Scores, mean ratios, effective shares, and the ratio's error at the end."""
    (game,) = results.games
    labels = [arm.label for arm in results.arms]
    diverged = {label: results.diverged(game, label) for label in labels}
    error = {
        label: float(np.median(results.endings(game, label, "ratio_loss"))) for label in labels
    }
    unstable = {
        label: is_unstable(diverged[label], error[label], error[BASELINE]) for label in labels
    }
    better = results.improvement(INVERSE, BASELINE)
    said = "; ".join(
        f"{label}: squared error {error[label]:.3g}, {diverged[label]} diverged" for label in labels
    )
    return {
        "verdict": verdict(
            prioritized_is_unstable=unstable[PRIORITIZED],
            inverse_is_unstable=unstable[INVERSE],
            better=better,
            seeds=results.seeds,
        ),
        "found": f"{said}. P(1/c beats uniform) = {say(better)}.",
        "headline": headline(better, f"P(better than {BASELINE})", INVERSE),
        "table": results.score_table(BASELINE),
        "panels": [
            *results.score_panels(),
            results.panel(game, "mean_ratio", "mean c over the data"),
            results.panel(game, "effective_share", "ESS/N"),
            results.panel(game, "ratio_loss", "squared ratio error"),
        ],
    }
