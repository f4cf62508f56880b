"""Whether the correction helps over games, and in which."""

from __future__ import annotations

from typing import Any

from covshift.experiments.results import Results, headline, judge, say

BASELINE = "no correction"


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves of every game, and P(better) over all and in each."""
    over_all = results.improvement("corrected", BASELINE)
    each = [
        f"{game}: {say(estimate)}"
        for game, estimate in results.improvement_by_game("corrected", BASELINE).items()
    ]
    return {
        "verdict": judge([over_all], results.seeds),
        "found": (
            f"Probability that the corrected agent beats no correction: {say(over_all)} over all games; "
            f"{'; '.join(each)}."
        ),
        "headline": headline(over_all, f"P(better than {BASELINE}), all games", "corrected"),
        "table": results.score_table(BASELINE),
        "panels": results.score_panels(),
    }
