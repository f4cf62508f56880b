"""What a smaller replay costs, and whether softer priorities give it back."""

from __future__ import annotations

from typing import Any

from covshift.experiments.results import Results, headline, judge, say

FULL = "all data"


def analyze(results: Results) -> dict[str, Any]:
    """Scores and effective shares."""
    (game,) = results.games
    better = results.improvement(FULL, "a part")
    labels = [arm.label for arm in results.arms if arm.preset != "c51"]
    return {
        "verdict": judge([better], results.seeds),
        "found": f"P(all data beat a part) = {say(better)}.",
        "headline": headline(better, "P(better than a part)", FULL),
        "table": results.score_table(FULL),
        "panels": [
            *results.score_panels(),
            results.panel(game, "effective_share", "ESS/N if drawn by c", labels),
            results.panel(game, "value_loss", "training loss"),
        ],
    }
