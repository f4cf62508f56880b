"""Figure 1, right, and Figure 6: the normalization loss in place of a discount."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import (
    RULE,
    Scores,
    all_shown,
    any_shown,
    decide,
    headline,
    say,
)
from covshift.report.contrasts import compare

BASELINE = "no correction"
WEIGHTS = {f"weight {weight:g}": weight for weight in (0.0, 1e-3, 1e-2, 1e-1, 1.0)}
SMALL = [label for label, weight in WEIGHTS.items() if 0 < weight <= 0.01]
LARGE = [label for label, weight in WEIGHTS.items() if weight >= 0.1]

EXPERIMENT = Comparison(
    name="normalization",
    aliases=("figure-1-right", "figure-6"),
    title="Normalization in place of a discount",
    claim="At γ̂ = 1 a normalization loss improves over no correction, and large weights make c diverge.",
    paper=(
        "Normalization improves performance in Pong, but large weights are unstable: runs that stop in the middle of "
        "the plot had diverged in their c outputs (Figure 6 shows the mean c)."
    ),
    games=ONE_GAME,
    arms=every_scale(
        (
            Arm(BASELINE, "c51"),
            *(
                Arm(label, "c51-normalized", {"normalization_weight": weight})
                for label, weight in WEIGHTS.items()
            ),
        )
    ),
    seeds={"paper": 5, "small": 5, "smoke": 1},
    rule=RULE
    + "The claim has two halves. The first is shown if one of the small weights, 0.001 and 0.01, is better than no "
    "correction, and refuted if both are worse. The second is shown if more runs diverge with the large weights, 0.1 and 1, "
    "than with the small ones (the same exact test), and refuted if so few runs with large weights diverge that this has a "
    "probability of at most 1.25 % where each diverges with probability ½. The claim holds if both halves are shown, and "
    "does not hold if one is refuted.",
    analyze=lambda results: analyze(results),
    differences=(
        "The paper's own semantics, target 1 at initial states and a mean of 1, cannot both hold.",
        "The weights are ours: the paper does not print them.",
        "η = 0.002, as captioned; the text's 0.02 is a variant of Figure 1, left, alone.",
    ),
)


def verdict(scores: Scores, diverged: Scores) -> str:
    """The rule above.

    Args:
        scores: final scores by arm.
        diverged: by arm, 1 for each run that diverged and 0 for each other.
    """
    small = [compare(scores[label], scores[BASELINE]) for label in SMALL]
    at_large, at_small = (
        np.concatenate([diverged[label] for label in labels]) for labels in (LARGE, SMALL)
    )
    return decide(
        len(scores[BASELINE]),
        holds=any_shown(contrast.better for contrast in small)
        and all_shown([compare(at_large, at_small).better]),
        fails=any_shown([max(contrast.worse for contrast in small), rarely(at_large)]),
    )


def rarely(diverged: NDArray[np.float64]) -> float:
    """The probability that at most so many runs diverge if each diverges with probability ½.

    Example:
        >>> rarely(np.array([0, 0, 0, 1]))  # (1 + 4)/16
        0.3125
    """
    runs = len(diverged)
    ways = sum(math.comb(runs, k) for k in range(int(diverged.sum()) + 1))
    return ways / float(2**runs)


def analyze(results: Results) -> dict[str, Any]:
    """Scores, the mean c of each run, and how many runs diverged."""
    (game,) = results.games
    better = {label: results.improvement(label, BASELINE) for label in WEIGHTS}
    diverged = {
        label: np.array([run.diverged for run in results.of(game, label)], dtype=np.float64)
        for label in WEIGHTS
    }
    small = {label: better[label] for label in SMALL}
    best = min(small, key=lambda label: (small[label].better, -small[label].value))
    said = "; ".join(
        f"{label}: {say(better[label])}, {diverged[label].sum():.0f} diverged" for label in WEIGHTS
    )
    return {
        "verdict": verdict(results.all_scores(), diverged),
        "found": f"Probability of beating no correction, and runs that diverged: {said}.",
        "headline": headline(small[best], f"P(better than {BASELINE})", best),
        "table": results.score_table(BASELINE),
        "panels": [
            *results.score_panels(),
            results.panel(game, "mean_ratio", "mean c over the data (Figure 6)", list(WEIGHTS)),
        ],
    }
