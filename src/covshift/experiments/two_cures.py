"""Ours: whether fresh priorities or the matching loss raise the score, told apart by a 2 × 2 design."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import (
    RULE,
    Scores,
    headline,
    judge,
    say_each,
    weakest,
)
from covshift.report.contrasts import compare

BASELINE = "no correction"
SQUARED, SQUARED_FRESH = "squared loss, paper's priorities", "squared loss, fresh priorities"
MATCHING, MATCHING_FRESH = "matching loss, paper's priorities", "matching loss, fresh priorities"

FRESH = {"refresh": "both", "priority_scale": "mean"}
PAPERS = {"refresh": "prioritized", "priority_scale": "raw"}

EXPERIMENT = Comparison(
    name="two_cures",
    aliases=(),
    title="Fresh priorities or the matching loss",
    claim="Priorities that are renewed from both batches and kept on one scale raise the score, under either loss.",
    paper=(
        "The paper renews the priorities of drawn transitions only and stores the ratio as it is. While the mean ratio "
        "drifts, transitions that are not drawn keep priorities on an old scale. B7's matching loss keeps the mean; "
        "what it adds to the score beside fresh priorities is open."
    ),
    games=ONE_GAME,
    arms=every_scale(
        (
            Arm(BASELINE, "c51"),
            Arm(SQUARED, "c51-corrected"),
            Arm(SQUARED_FRESH, "c51-corrected", FRESH),
            Arm(MATCHING, "c51-matched", PAPERS),
            Arm(MATCHING_FRESH, "c51-matched"),
        )
    ),
    seeds={"paper": 5, "small": 10, "smoke": 1},
    rule=RULE
    + "The claim holds if, under each of the two losses, fresh priorities are better than the paper's, and does not hold if "
    "they are worse under one. The loss has no verdict of its own: its two comparisons are reported.",
    analyze=lambda results: analyze(results),
)


def verdict(scores: Scores) -> str:
    """The rule above."""
    pairs = ((SQUARED_FRESH, SQUARED), (MATCHING_FRESH, MATCHING))
    contrasts = [compare(scores[fresh], scores[papers]) for fresh, papers in pairs]
    return judge(contrasts, len(scores[BASELINE]))


def analyze(results: Results) -> dict[str, Any]:
    """The effect of fresh priorities under each loss, and of the loss under each kind of priorities."""
    (game,) = results.games
    fresh = {
        "squared loss": results.improvement(SQUARED_FRESH, SQUARED),
        "matching loss": results.improvement(MATCHING_FRESH, MATCHING),
    }
    matching = {
        "paper's priorities": results.improvement(MATCHING, SQUARED),
        "fresh priorities": results.improvement(MATCHING_FRESH, SQUARED_FRESH),
    }
    worst = weakest(fresh)
    return {
        "verdict": verdict(results.all_scores()),
        "found": f"Probability that fresh priorities beat the paper's: {say_each(fresh)}. Probability that the matching "
        f"loss beats the squared loss: {say_each(matching)}.",
        "headline": headline(fresh[worst], "P(fresh priorities beat the paper's)", worst),
        "table": results.score_table(BASELINE),
        "panels": [
            *results.score_panels(),
            results.panel(game, "mean_ratio", "mean c over the data"),
            results.panel(game, "effective_share", "ESS/N of the ratio"),
        ],
    }
