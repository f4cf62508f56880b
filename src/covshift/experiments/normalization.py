"""Figure 1, right, and Figure 6: the normalization loss in place of a discount."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import RULE, decide, headline, say
from covshift.report.statistics import Estimate

BASELINE = "no correction"
WEIGHTS = {f"weight {weight:g}": weight for weight in (0.0, 1e-3, 1e-2, 1e-1, 1.0)}
SMALL = [label for label, weight in WEIGHTS.items() if 0 < weight <= 0.01]
LARGEST = max(WEIGHTS, key=WEIGHTS.__getitem__)

EXPERIMENT = Comparison(
    name="normalization",
    aliases=("figure-1-right", "figure-6"),
    title="Normalization in place of a discount",
    claim="At γ̂ = 1 a normalization loss improves over no correction, and a large weight makes c diverge.",
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
    seeds={"paper": 5, "small": 3, "smoke": 1},
    rule=RULE
    + "The claim holds if a weight in (0, 0.01] has an interval above ½ and a run with weight 1 diverged. It does not "
    "hold if all weights in (0, 0.01] have intervals below ½ and no run diverged. Otherwise the data do not decide.",
    analyze=lambda results: analyze(results),
    differences=(
        "The paper's own semantics, target 1 at initial states and a mean of 1, cannot both hold.",
        "The weights are ours: the paper does not print them.",
        "η = 0.002, as captioned; the text's 0.02 is a variant of Figure 1, left, alone.",
    ),
)


def verdict(
    small: Collection[Estimate], diverged_at_largest: int, diverged: int, seeds: int
) -> str:
    """The rule above.

    Args:
        small: for each weight in (0, 0.01], P(better than no correction).
        diverged_at_largest: runs with the largest weight that diverged.
        diverged: runs with any weight that diverged.
        seeds: runs of each arm.
    """
    return decide(
        seeds,
        holds=any(estimate.low > 0.5 for estimate in small) and diverged_at_largest > 0,
        fails=all(estimate.high < 0.5 for estimate in small) and diverged == 0,
    )


def analyze(results: Results) -> dict[str, Any]:
    """Scores, the mean c of each run, and how many runs diverged."""
    (game,) = results.games
    better = {label: results.improvement(label, BASELINE) for label in WEIGHTS}
    diverged = {label: results.diverged(game, label) for label in WEIGHTS}
    small = {label: better[label] for label in SMALL}
    best = max(small, key=lambda label: (small[label].low, small[label].value))
    said = "; ".join(
        f"{label}: {say(better[label])}, {diverged[label]} diverged" for label in WEIGHTS
    )
    return {
        "verdict": verdict(
            small.values(), diverged[LARGEST], sum(diverged.values()), results.seeds
        ),
        "found": f"Probability of beating no correction, and runs that diverged: {said}.",
        "headline": headline(small[best], f"P(better than {BASELINE})", best),
        "table": results.score_table(BASELINE),
        "panels": [
            *results.score_panels(),
            results.panel(game, "mean_ratio", "mean c over the data (Figure 6)", list(WEIGHTS)),
        ],
    }
