"""Ours: whether another discount, weight or link would serve the matched agent better than its preset's."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import (
    RULE,
    SETTINGS_RULE,
    Scores,
    headline,
    judge_settings,
    say_each,
)

BASELINE = "the preset (γ̂ = 0.99, η = 0.04, safe link)"
OTHERS: dict[str, dict[str, Any]] = {
    "γ̂ = 0.9": {"ratio_discount": 0.9},
    "γ̂ = 0.999": {"ratio_discount": 0.999},
    "η = 0.01": {"ratio_loss_weight": 0.01},
    "η = 0.16": {"ratio_loss_weight": 0.16},
    "exponential link": {"ratio_head": "exponential"},
}

LENGTHS = {"paper": 1_000_000, "small": 20_000, "smoke": 100}
"""Updates of a run: a third of a `small` run, since this is a sweep."""


def arms(length: int) -> tuple[Arm, ...]:
    """The preset, and one setting changed at a time."""
    changed = (Arm(label, "c51-matched", leaves) for label, leaves in OTHERS.items())
    return tuple(
        Arm(arm.label, arm.preset, {**arm.leaves, "num_updates": length})
        for arm in (Arm(BASELINE, "c51-matched"), *changed)
    )


EXPERIMENT = Comparison(
    name="matched_settings",
    aliases=(),
    title="The settings of the matched agent",
    claim="None of the other discounts, weights and links scores more than the preset c51-matched.",
    paper=(
        "The paper sweeps γ̂ and η for its own loss (Figure 1). This is the same question for the matching loss of B7, in a "
        "small sweep that changes one setting at a time."
    ),
    games=ONE_GAME,
    arms={scale: arms(length) for scale, length in LENGTHS.items()},
    seeds={"paper": 3, "small": 5, "smoke": 1},
    rule=RULE + SETTINGS_RULE + "Otherwise the preset is kept, since nothing speaks for another.",
    analyze=lambda results: analyze(results),
)


def verdict(scores: Scores) -> str:
    """The rule above."""
    return judge_settings(scores, BASELINE, OTHERS)


def analyze(results: Results) -> dict[str, Any]:
    """Scores of each setting, and how far its ratio is from the exact one."""
    (game,) = results.games
    better = {label: results.improvement(label, BASELINE) for label in OTHERS}
    best = min(better, key=lambda label: better[label].better)
    errors = {
        arm.label: np.median(results.endings(game, arm.label, "calibration_error"))
        for arm in results.arms
    }
    said = "; ".join(f"{label}: {error:.2f}" for label, error in errors.items())
    return {
        "verdict": verdict(results.all_scores()),
        "found": f"Probability that a setting beats the preset: {say_each(better)}. Median calibration error: {said}.",
        "headline": headline(better[best], "P(better than the preset)", best),
        "table": results.score_table(BASELINE),
        "panels": [
            *results.score_panels(),
            results.panel(game, "mean_ratio", "mean c over the data"),
            results.panel(game, "effective_share", "ESS/N"),
            results.panel(game, "calibration_error", "calibration error"),
        ],
    }
