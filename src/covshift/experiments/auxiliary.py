"""Figure 3: the ratio as an auxiliary task, and TD-error priorities."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ALL_GAMES, Arm, Comparison, every_scale
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
from covshift.report.statistics import interquartile_mean

BASELINE = "no correction"
CORRECTED = "corrected, γ̂ = 0.999"

EXPERIMENT = Comparison(
    name="auxiliary",
    aliases=("figure-3",),
    title="Auxiliary task and TD-error priority",
    claim="Neither learning the ratio without using it nor TD-error priorities explain the corrected agent's gain.",
    paper=(
        "Neither made a difference in any game but Space Invaders, where the auxiliary task helped with uniform "
        "sampling and hurt with prioritization (3 seeds, 50 iterations, η = 0.002)."
    ),
    games=ALL_GAMES,
    arms=every_scale(
        (
            Arm(BASELINE, "c51"),
            Arm("auxiliary", "c51-auxiliary"),
            Arm("TD-error priority", "c51-td-priority"),
            Arm("auxiliary, TD-error priority", "c51-auxiliary-td-priority"),
            Arm(
                CORRECTED,
                "c51-corrected",
                {"ratio_discount": 0.999, "ratio_loss_weight": 0.002},
            ),
        ),
        iterations=50,
    ),
    seeds={"paper": 3, "small": 5, "smoke": 1},
    rule=RULE
    + "The claim holds if the corrected agent is better than all four other arms, and does not hold if it is worse than "
    "one of the four.",
    analyze=lambda results: analyze(results),
    differences=("The corrected agent is drawn as a horizontal line at its final score.",),
)


def verdict(scores: Scores) -> str:
    """The rule above."""
    others = [theirs for label, theirs in scores.items() if label != CORRECTED]
    contrasts = [compare(scores[CORRECTED], theirs) for theirs in others]
    return judge(contrasts, len(scores[CORRECTED]))


def analyze(results: Results) -> dict[str, Any]:
    """The learning curves of the four other arms, and the corrected agent's final score as a line."""
    others = [arm.label for arm in results.arms if arm.label != CORRECTED]
    against = {label: results.improvement(CORRECTED, label) for label in others}
    panels = []
    for game, scores in zip(results.games, results.scores(CORRECTED).T, strict=True):
        panel = results.score_panel(game, others)
        end = float(interquartile_mean(scores))
        panel["lines"].append({"label": f"{CORRECTED}, at the end", "y": end})
        panels.append(panel)
    worst = weakest(against)
    return {
        "verdict": verdict(results.all_scores()),
        "found": f"Probability that the corrected agent beats each arm: {say_each(against)}.",
        "headline": headline(against[worst], f"P(better than {worst}), all games", CORRECTED),
        "table": results.score_table(BASELINE),
        "panels": panels,
    }
