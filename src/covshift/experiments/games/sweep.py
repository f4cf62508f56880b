"""The arms of Figure 2: corrected, and uncorrected with both target periods."""

from covshift.experiments.experiment import ALL_GAMES, Arm, Experiment, every_scale
from covshift.experiments.games.analysis import BASELINE, analyze
from covshift.experiments.results import RULE

EXPERIMENT = Experiment(
    name="games",
    aliases=("figure-2",),
    title="Several games",
    claim="Discounted corrections (γ̂ = 0.99, η = 0.02) improve the score over games.",
    paper=(
        "Improvements in Seaquest, Breakout and Pong, no noticeable difference in Asterix, a small loss in Space "
        "Invaders (3 seeds)."
    ),
    rule=RULE
    + "The claim holds if the corrected agent's interval over all games, against no correction with the same target "
    "period, is above ½, and does not hold if it is below.",
    games=ALL_GAMES,
    arms=every_scale(
        (
            Arm(BASELINE, "c51"),
            Arm("no correction, target period 8000", "c51", {"target_period": 8000}),
            Arm("corrected", "c51-corrected"),
        )
    ),
    seeds={"paper": 3, "small": 3, "smoke": 1},
    analyze=analyze,
    differences=("MinAtar has no Pong: four games at the scale small.",),
)
