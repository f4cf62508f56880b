"""The arms of Figure 1, left: γ̂, both values of η, and no correction."""

from covshift.experiments.experiment import ONE_GAME, Arm, Experiment
from covshift.experiments.ratio_discount.analysis import BASELINE, analyze
from covshift.experiments.results import RULE

DISCOUNTS = (0.9, 0.99, 0.999, 0.9999)


def arms(second_eta: tuple[float, ...]) -> tuple[Arm, ...]:
    """All γ̂ at η = 0.02, some at η = 0.002 too."""

    def corrected(discount: float, eta: float) -> Arm:
        leaves = {"ratio_discount": discount, "ratio_loss_weight": eta}
        return Arm(f"γ̂ = {discount:g}, η = {eta:g}", "c51-corrected", leaves)

    return (
        Arm(BASELINE, "c51"),
        *(corrected(discount, 0.02) for discount in DISCOUNTS),
        *(corrected(discount, 0.002) for discount in second_eta),
    )


EXPERIMENT = Experiment(
    name="ratio_discount",
    aliases=("figure-1-left",),
    title="The ratio's discount",
    claim="Replay prioritized by the discounted ratio beats no correction, for every γ̂ but 0.9999.",
    paper=(
        "In Pong all discounts but γ̂ = 0.9999 score more than the uncorrected agent after 150 iterations "
        "(5 seeds); the caption says η = 0.002, the text η = 0.02."
    ),
    rule=RULE
    + "The claim holds if every γ̂ up to 0.999 at η = 0.02 has an interval above ½, and does not hold if one has "
    "an interval below ½.",
    games=ONE_GAME,
    arms={"paper": arms(DISCOUNTS), "small": arms((0.99,)), "smoke": arms(())},
    seeds={"paper": 5, "small": 5, "smoke": 1},
    analyze=analyze,
    differences=("The second η is run at γ̂ = 0.99 only, at the scale small.",),
)
