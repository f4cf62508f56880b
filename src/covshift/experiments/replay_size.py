"""Ours: effective sample size and overfitting against the size of the replay and tempered priorities."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import RULE, Scores, headline, judge, say
from covshift.report.contrasts import Contrast, compare

FULL = "all data"
PART = "a part"
FULL_PLAIN, PART_PLAIN = "all data, no correction", "a part, no correction"
PART_SIZES = {"paper": 1_000_000, "small": 30_000, "smoke": 500}
"""Transitions of the smaller replay; the full one has 10 million, 300 000 and 2 000."""


def arms(part: int) -> tuple[Arm, ...]:
    """The whole replay and its newest part, each with and without the correction, and that part with milder priorities."""
    return (
        Arm(FULL, "c51-corrected"),
        Arm(PART, "c51-corrected", {"window": part}),
        Arm(FULL_PLAIN, "c51"),
        Arm(PART_PLAIN, "c51", {"window": part}),
        Arm(f"{PART}, τ = ½", "c51-corrected", {"window": part, "priority_tempering": 0.5}),
        Arm(f"{PART}, half uniform", "c51-corrected", {"window": part, "uniform_share": 0.5}),
    )


EXPERIMENT = Comparison(
    name="replay_size",
    aliases=(),
    title="Replay size, tempering and overfitting",
    claim="A smaller replay hurts the corrected agent, and more than the uncorrected one, which draws from all of it.",
    paper=(
        "Large portions of the dataset are mostly ignored, so that its effective size is smaller and overfitting is a "
        "risk; the paper takes a replay of 10 million frames to mitigate it. No numbers are given."
    ),
    games=ONE_GAME,
    arms={scale: arms(part) for scale, part in PART_SIZES.items()},
    seeds={"paper": 3, "small": 5, "smoke": 1},
    rule=RULE
    + "The loss of a seed is its score with the whole replay less its score with the part. The claim holds if the "
    "corrected agent is better with the whole replay and its losses are larger than the uncorrected agent's. It does not "
    "hold if the corrected agent is worse with the whole replay or its losses are smaller.",
    analyze=lambda results: analyze(results),
)


def verdict(scores: Scores) -> str:
    """The rule above."""
    contrasts = [compare(scores[FULL], scores[PART]), compare_losses(scores)]
    return judge(contrasts, len(scores[FULL]))


def compare_losses(scores: Scores) -> Contrast:
    """Whether the smaller replay costs the corrected agent more than the uncorrected one.

    Without this comparison the claim's cause is open: with a smaller replay any agent learns from less.
    """
    return compare(scores[FULL] - scores[PART], scores[FULL_PLAIN] - scores[PART_PLAIN])


def analyze(results: Results) -> dict[str, Any]:
    """Scores and effective shares."""
    (game,) = results.games
    better, more = results.improvement(FULL, PART), compare_losses(results.all_scores())
    with_ratio = [arm.label for arm in results.arms if arm.preset != "c51"]
    return {
        "verdict": verdict(results.all_scores()),
        "found": f"P(all data beat a part) = {say(better)} with the correction and "
        f"{say(results.improvement(FULL_PLAIN, PART_PLAIN))} without it; P(the correction loses more) = {say(more)}.",
        "headline": headline(better, f"P(better than {PART})", FULL),
        "table": results.score_table(FULL),
        "panels": [
            *results.score_panels(),
            results.panel(game, "effective_share", "ESS/N if drawn by c", with_ratio),
            results.panel(game, "value_loss", "training loss"),
        ],
    }
