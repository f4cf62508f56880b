"""Figure 2: the corrected agent on several games."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ALL_GAMES, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import RULE, Scores, headline, judge, say, say_each
from covshift.report.contrasts import compare

BASELINE = "no correction"
CORRECTED = "corrected"

EXPERIMENT = Comparison(
    name="games",
    aliases=("figure-2",),
    title="Several games",
    claim="Discounted corrections (γ̂ = 0.99, η = 0.02) improve the score over games.",
    paper=(
        "Improvements in Seaquest, Breakout and Pong, no noticeable difference in Asterix, a small loss in Space "
        "Invaders (3 seeds)."
    ),
    games=ALL_GAMES,
    arms=every_scale(
        (
            Arm(BASELINE, "c51"),
            Arm("no correction, target period 8000", "c51", {"target_period": 8000}),
            Arm(CORRECTED, "c51-corrected"),
        )
    ),
    seeds={"paper": 3, "small": 10, "smoke": 1},
    rule=RULE
    + "The claim holds if the corrected agent is better over all games than no correction with the same target period, "
    "and does not hold if it is worse.",
    analyze=lambda results: analyze(results),
    differences=("MinAtar has no Pong: the scale small has four games.",),
)


def verdict(scores: Scores) -> str:
    """The rule above."""
    return judge([compare(scores[CORRECTED], scores[BASELINE])], len(scores[BASELINE]))


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves of every game, and P(better) over all games and in each."""
    better = results.improvement(CORRECTED, BASELINE)
    each = say_each(results.improvement_by_game(CORRECTED, BASELINE))
    return {
        "verdict": verdict(results.all_scores()),
        "found": f"Probability that the corrected agent beats no correction: {say(better)} over all games; {each}.",
        "headline": headline(better, f"P(better than {BASELINE}), all games", CORRECTED),
        "table": results.score_table(BASELINE),
        "panels": results.score_panels(),
    }
