"""Whether resampling beats reweighting."""

from __future__ import annotations

from typing import Any

from covshift.experiments.results import Results, headline, judge, say

BASELINE = "reweight"
RESAMPLED = "resample (paper)"


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves, and P(resampling beats reweighting)."""
    better = results.improvement(RESAMPLED, BASELINE)
    return {
        "verdict": judge([better], results.seeds),
        "found": f"P(resampling beats reweighting) = {say(better)}.",
        "headline": headline(better, f"P(better than {BASELINE})", RESAMPLED),
        "table": results.score_table(BASELINE),
        "panels": results.score_panels(),
    }
