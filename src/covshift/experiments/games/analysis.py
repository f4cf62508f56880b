"""Whether the correction helps over games, and in which."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.experiments.results import SEED, Results, judge, say
from covshift.report.statistics import improvement_estimate

BASELINE = "no correction"


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves of every game, and P(better) over all and in each."""
    over_all = results.improvement("corrected", BASELINE)
    each = []
    for game, ours, theirs in zip(
        results.games, results.scores("corrected").T, results.scores(BASELINE).T, strict=True
    ):
        estimate = improvement_estimate(ours, theirs, np.random.default_rng(SEED))
        each.append(f"{game}: {say(estimate)}")
    return {
        "verdict": judge([over_all], results.seeds),
        "found": (
            f"Probability that the corrected agent beats no correction: {say(over_all)} over all games; "
            f"{'; '.join(each)}."
        ),
        "table": results.score_table(BASELINE),
        "panels": results.score_panels(),
    }
