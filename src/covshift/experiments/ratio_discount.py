"""Figure 1, left: how the ratio's discount γ̂ changes what the corrected agent learns."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import (
    RULE,
    Scores,
    all_shown,
    any_shown,
    decide,
    headline,
    say,
    say_each,
    weakest,
)
from covshift.report.contrasts import compare

BASELINE = "no correction"
DISCOUNTS = (0.9, 0.99, 0.999, 0.9999)


def corrected_arms(discounts: tuple[float, ...], eta: float) -> tuple[Arm, ...]:
    """The corrected agent with each γ̂, and η as the weight of the ratio's loss."""
    return tuple(
        Arm(
            f"γ̂ = {discount:g}, η = {eta:g}",
            "c51-corrected",
            {"ratio_discount": discount, "ratio_loss_weight": eta},
        )
        for discount in discounts
    )


ARMS = (Arm(BASELINE, "c51"), *corrected_arms(DISCOUNTS, 0.02))
LONG_PERIOD = (
    Arm(f"{BASELINE}, target period 8000", "c51", {"target_period": 8000}),
    Arm(
        "γ̂ = 0.99, η = 0.02, target period 8000",
        "c51-corrected",
        {"ratio_discount": 0.99, "ratio_loss_weight": 0.02, "target_period": 8000},
    ),
)
"""The other reading of the paper, which names the period of 1000 in Figure 2's caption alone."""

*HELPFUL, EXCEPTION = (arm.label for arm in corrected_arms(DISCOUNTS, 0.02))
"""The discounts that should beat no correction, and 0.9999, which should not."""

EXPERIMENT = Comparison(
    name="ratio_discount",
    aliases=("figure-1-left",),
    title="The ratio's discount",
    claim="Replay prioritized by the discounted ratio beats no correction, for every γ̂ but 0.9999.",
    paper=(
        "In Pong all discounts but γ̂ = 0.9999 score more than the uncorrected agent after 150 iterations "
        "(5 seeds); the caption says η = 0.002, the text η = 0.02."
    ),
    games=ONE_GAME,
    arms={
        "paper": (*ARMS, *corrected_arms(DISCOUNTS, 0.002), *LONG_PERIOD),
        "small": (*ARMS, *corrected_arms((0.99,), 0.002), *LONG_PERIOD),
        "smoke": ARMS,
    },
    seeds={"paper": 5, "small": 10, "smoke": 1},
    rule=RULE
    + "The claim is judged at η = 0.02. It holds if every γ̂ up to 0.999 is better than no correction and better than γ̂ = "
    "0.9999. It does not hold if one of them is worse than no correction, or if γ̂ = 0.9999 is better than no correction "
    "(one of four comparisons is enough).",
    analyze=lambda results: analyze(results),
    differences=(
        "At the scale small the second η is run with γ̂ = 0.99 only.",
        "The target period is 1000, which the paper names in Figure 2's caption alone; two arms have Dopamine's 8000, and "
        "are not judged.",
    ),
)


def verdict(scores: Scores) -> str:
    """The rule above."""
    helpful = [compare(scores[label], scores[BASELINE]) for label in HELPFUL]
    apart = [compare(scores[label], scores[EXCEPTION]) for label in HELPFUL]
    exception = compare(scores[EXCEPTION], scores[BASELINE])
    return decide(
        len(scores[BASELINE]),
        holds=all_shown(contrast.better for contrast in (*helpful, *apart)),
        fails=any_shown([*(contrast.worse for contrast in helpful), exception.better]),
    )


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves, and P(better than no correction) of each discount."""
    better = {
        arm.label: results.improvement(arm.label, BASELINE)
        for arm in results.arms
        if arm.label not in (BASELINE, *(long.label for long in LONG_PERIOD))
    }
    judged = {label: better[label] for label in HELPFUL}
    apart = {label: results.improvement(label, EXCEPTION) for label in HELPFUL}
    worst = weakest(judged)
    return {
        "verdict": verdict(results.all_scores()),
        "found": f"Probability of beating no correction: {say_each(better)}. Probability of beating {EXCEPTION}: "
        f"{say_each(apart)}.{_of_long_period(results)}",
        "headline": headline(judged[worst], f"P(better than {BASELINE})", worst),
        "table": results.score_table(BASELINE),
        "panels": results.score_panels(),
    }


def _of_long_period(results: Results) -> str:
    """The same comparison under the other reading of the paper, at the scales that have it."""
    plain, corrected = (arm.label for arm in LONG_PERIOD)
    if plain not in [arm.label for arm in results.arms]:
        return ""
    better = results.improvement(corrected, plain)
    return f" With a target period of 8000, P(γ̂ = 0.99 beats no correction) = {say(better)}."
