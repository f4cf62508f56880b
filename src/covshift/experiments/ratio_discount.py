"""Figure 1, left: how the ratio's discount γ̂ changes what the corrected agent learns."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import RULE, headline, judge, say_each, weakest

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
        "paper": (*ARMS, *corrected_arms(DISCOUNTS, 0.002)),
        "small": (*ARMS, *corrected_arms((0.99,), 0.002)),
        "smoke": ARMS,
    },
    seeds={"paper": 5, "small": 5, "smoke": 1},
    rule=RULE
    + "The claim holds if every γ̂ up to 0.999 at η = 0.02 has an interval above ½, and does not hold if one of them "
    "has an interval below ½.",
    analyze=lambda results: analyze(results),
    differences=("At the scale small the second η is run with γ̂ = 0.99 only.",),
)


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves, and P(better than no correction) of each discount."""
    corrected = [arm for arm in results.arms if arm.label != BASELINE]
    better = {arm.label: results.improvement(arm.label, BASELINE) for arm in corrected}
    judged = {
        arm.label: better[arm.label]
        for arm in corrected
        if arm.leaves["ratio_discount"] <= 0.999 and arm.leaves["ratio_loss_weight"] == 0.02
    }
    worst = weakest(judged)
    return {
        "verdict": judge(list(judged.values()), results.seeds),
        "found": f"Probability of beating no correction: {say_each(better)}.",
        "headline": headline(judged[worst], f"P(better than {BASELINE})", worst),
        "table": results.score_table(BASELINE),
        "panels": results.score_panels(),
    }
