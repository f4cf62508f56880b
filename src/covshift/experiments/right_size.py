"""Ours: whether the matched agent learns a ratio of the right size, in every game."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.experiments.comparison.design import ALL_GAMES, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results, RunRecord
from covshift.experiments.comparison.verdicts import decide

MATCHED = "matched (c51-matched)"

FACTOR = 1.5
"""How far the mean ratio may be from its exact value at the end."""

EXPERIMENT = Comparison(
    name="right_size",
    aliases=(),
    title="A ratio of the right size",
    claim=(
        "The matched agent's E_μ[c] is one that a policy can have in every evaluation, and ends within a factor 1.5 of its "
        "exact value, in every run of every game."
    ),
    paper=(
        "The paper does not compare the learned ratio with the exact one. The exact E_μ[c] of a run's own policy "
        "follows from episodes that it plays from starts and from states of the data (B6). Figure 2 (`games`) and `ratio_scale` "
        "have E_μ[c] of the paper's agent."
    ),
    games=ALL_GAMES,
    arms=every_scale((Arm(MATCHED, "c51-matched"),)),
    seeds={"paper": 5, "small": 5, "smoke": 1},
    rule=(
        "The mean ratio of a run at its end is the mean of its last 3 rows, the exact one the mean of its last 3 "
        "evaluations. The claim holds if no evaluation of a matched run violates the invariants of B6 and every matched "
        "run ends within a factor 1.5 of the exact mean ratio, and does not hold if one run does otherwise or diverges. "
        "With fewer than three seeds there is no verdict."
    ),
    analyze=lambda results: analyze(results),
)


def size_of(run: RunRecord) -> float:
    """The mean ratio at the end of a run over its exact value; NaN where the exact value is not known."""
    return run.ending("mean_ratio") / run.ending("exact_mean_ratio")


def violations(run: RunRecord) -> int:
    """In how many evaluations of a run no policy could have its mean ratio."""
    return sum(row.get("invariant") == "violated" for row in run.rows)


def is_right(size: float, violated: int, *, diverged: bool) -> bool:
    """Whether a run has a ratio of the right size by the rule above; an unknown size is not right."""
    return not diverged and violated == 0 and 1.0 / FACTOR <= size <= FACTOR


def verdict(right: list[bool], seeds: int) -> str:
    """The rule above, from whether each matched run is right."""
    return decide(seeds, holds=all(right), fails=not all(right))


def analyze(results: Results) -> dict[str, Any]:
    """The size of every run's ratio, and its curves beside the exact one."""
    rows, right, sizes = [], [], []
    for game in results.games:
        runs = results.of(game, MATCHED)
        found = np.array([size_of(run) for run in runs])
        violated = [violations(run) for run in runs]
        fits = [
            is_right(size, count, diverged=run.diverged)
            for size, count, run in zip(found, violated, runs, strict=True)
        ]
        right += fits
        sizes += found.tolist()
        evaluations = sum("invariant" in row for run in runs for row in run.rows)
        exact = results.endings(game, MATCHED, "exact_mean_ratio")
        error = results.endings(game, MATCHED, "calibration_error")
        rows.append(
            [
                *(game, str(len(runs)), _range(exact), _range(found)),
                f"{sum(violated)} of {evaluations}",
                *(f"{np.median(error):.2f}", f"{sum(fits)} of {len(fits)}"),
            ]
        )
    columns = ["game", "runs", "exact E_μ[c]", "E_μ[c] over exact", "violated"]
    columns += ["median calibration error", "right size"]
    share = f"{sum(right)} of {len(right)}"
    return {
        "verdict": verdict(right, results.seeds),
        "found": f"{share} matched runs end with a ratio of the right size; E_μ[c] over its exact value is {_range(np.array(sizes))}.",
        "headline": {"value": share, "what": "runs with a ratio of the right size", "of": MATCHED},
        "table": {"columns": columns, "rows": rows},
        "panels": [
            panel
            for game in results.games
            for panel in (
                results.score_panel(game),
                results.panel(game, "mean_ratio", "mean c over the data"),
                results.panel(game, "exact_mean_ratio", "exact mean c, by episodes"),
            )
        ],
    }


def _range(values: np.ndarray) -> str:
    return f"{np.min(values):.2f} to {np.max(values):.2f}"
