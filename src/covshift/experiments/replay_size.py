"""Ours: effective sample size and overfitting against the size of the replay and tempered priorities."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import RULE, headline, judge, say

FULL = "all data"
PART = "a part"
PART_SIZES = {"paper": 1_000_000, "small": 30_000, "smoke": 500}
"""Transitions of the smaller replay; the full one has 10 million, 300 000 and 2 000."""


def arms(part: int) -> tuple[Arm, ...]:
    """The whole replay, its newest part, and that part with milder priorities."""
    return (
        Arm(FULL, "c51-corrected"),
        Arm(PART, "c51-corrected", {"window": part}),
        Arm(f"{PART}, no correction", "c51", {"window": part}),
        Arm(f"{PART}, τ = ½", "c51-corrected", {"window": part, "priority_tempering": 0.5}),
        Arm(f"{PART}, half uniform", "c51-corrected", {"window": part, "uniform_share": 0.5}),
    )


EXPERIMENT = Comparison(
    name="replay_size",
    aliases=(),
    title="Replay size, tempering and overfitting",
    claim="A smaller replay hurts the corrected agent, because drawing by c uses only a share of it.",
    paper=(
        "Large portions of the dataset are mostly ignored, so that its effective size is smaller and overfitting is a "
        "risk; the paper takes a replay of 10 million frames to mitigate it. No numbers are given."
    ),
    games=ONE_GAME,
    arms={scale: arms(part) for scale, part in PART_SIZES.items()},
    seeds={"paper": 3, "small": 3, "smoke": 1},
    rule=RULE
    + "The claim holds if the interval of the whole replay against the part is above ½, and does not hold if it is below.",
    analyze=lambda results: analyze(results),
)


def analyze(results: Results) -> dict[str, Any]:
    """Scores and effective shares."""
    (game,) = results.games
    better = results.improvement(FULL, PART)
    with_ratio = [arm.label for arm in results.arms if arm.preset != "c51"]
    return {
        "verdict": judge([better], results.seeds),
        "found": f"P(all data beat a part) = {say(better)}.",
        "headline": headline(better, f"P(better than {PART})", FULL),
        "table": results.score_table(FULL),
        "panels": [
            *results.score_panels(),
            results.panel(game, "effective_share", "ESS/N if drawn by c", with_ratio),
            results.panel(game, "value_loss", "training loss"),
        ],
    }
