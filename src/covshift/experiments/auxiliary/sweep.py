"""The four arms of Figure 3, and the corrected agent as a line."""

from covshift.experiments.auxiliary.analysis import BASELINE, CORRECTED, analyze
from covshift.experiments.experiment import ALL_GAMES, Arm, Experiment, every_scale
from covshift.experiments.results import RULE

EXPERIMENT = Experiment(
    name="auxiliary",
    aliases=("figure-3",),
    title="Auxiliary task and TD-error priority",
    claim="Neither learning the ratio without using it nor TD-error priorities explain the corrected agent's gain.",
    paper=(
        "Neither made a difference in any game but Space Invaders, where the auxiliary task helped with uniform "
        "sampling and hurt with prioritization (3 seeds, 50 iterations, η = 0.002)."
    ),
    rule=RULE
    + "The claim holds if the corrected agent's interval against each of the four arms is above ½, and does not hold "
    "if one is below.",
    games=ALL_GAMES,
    arms=every_scale(
        (
            Arm(BASELINE, "c51"),
            Arm("auxiliary", "c51-auxiliary"),
            Arm("TD-error priority", "c51-td-priority"),
            Arm("auxiliary, TD-error priority", "c51-auxiliary-td-priority"),
            Arm(
                CORRECTED,
                "c51-corrected",
                {"ratio_discount": 0.999, "ratio_loss_weight": 0.002},
            ),
        ),
        iterations=50,
    ),
    seeds={"paper": 3, "small": 3, "smoke": 1},
    analyze=analyze,
    differences=("The corrected agent is drawn as the level that it ends at.",),
)
