"""Ours: whether the matched ratio scores more than no correction in the games that were not compared before."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import MINATAR, Arm, Comparison
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import (
    RULE,
    Scores,
    headline,
    judge,
    say,
    say_each,
)
from covshift.report.contrasts import compare

BASELINE = "no correction"
MATCHED = "matched ratio"

ARMS = (Arm(BASELINE, "c51"), Arm(MATCHED, "c51-matched"))

KNOWN = "MinAtar/Breakout-v1"
"""The game in which `two_cures` had shown the difference before this rule was stated."""

OTHERS = tuple(game for game in MINATAR if game != KNOWN)

EXPERIMENT = Comparison(
    name="other_games",
    aliases=(),
    title="The matched ratio beyond Breakout",
    claim="In MinAtar's other games too, drawing replay by the matched ratio scores more than no correction.",
    paper=(
        "The paper reports gains in three of five games, no difference in Asterix, and a small loss in Space Invaders. In "
        "Breakout the runs of two_cures showed a gain of the matched ratio, for which no rule had been stated; so the rule "
        "of this experiment is about games in which the two had not been compared."
    ),
    games={"small": OTHERS, "smoke": OTHERS[:1]},
    arms={"small": ARMS, "smoke": ARMS},
    seeds={"small": 10, "smoke": 1},
    rule=RULE
    + "The claim holds if the matched ratio is better over the three games than no correction, and does not hold if it is "
    "worse.",
    analyze=lambda results: analyze(results),
    differences=("MinAtar has no Pong.",),
)


def verdict(scores: Scores) -> str:
    """The rule above."""
    return judge([compare(scores[MATCHED], scores[BASELINE])], len(scores[BASELINE]))


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves, and P(better than no correction) over all games and in each."""
    better = results.improvement(MATCHED, BASELINE)
    each = say_each(results.improvement_by_game(MATCHED, BASELINE))
    return {
        "verdict": verdict(results.all_scores()),
        "found": f"Probability that the matched ratio beats no correction: {say(better)} over all games; {each}.",
        "headline": headline(better, f"P(better than {BASELINE}), all games", MATCHED),
        "table": results.score_table(BASELINE),
        "panels": results.score_panels(),
    }
