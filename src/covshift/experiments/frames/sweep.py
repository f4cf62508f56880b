"""One corrected run in each game, whose ratio ranks states of the data."""

from covshift.experiments.experiment import ALL_GAMES, Arm, Experiment, every_scale
from covshift.experiments.frames.analysis import ARM, analyze

EXPERIMENT = Experiment(
    name="frames",
    aliases=("figure-5", "figure-7", "figure-8"),
    title="Frames of high and low ratio",
    claim="States of the highest c have more reward behind them in their episode than states of the lowest c.",
    paper=(
        "Of 100 000 states under the random policy the 50 with the highest and the lowest predicted c are shown: high c "
        "are frames that a good policy would see."
    ),
    rule=(
        "Of up to 100 000 states of the data the 50 highest and the 50 lowest by c are taken. The claim holds if in "
        "every game the mean return so far of the former is larger, with a 95 % bootstrap interval of the difference "
        "above 0; it does not hold if it is smaller in every game, with such an interval below 0; else the data do not say."
    ),
    games=ALL_GAMES,
    arms=every_scale((Arm(ARM, "c51-corrected"),), iterations=50),
    seeds={"paper": 1, "small": 1, "smoke": 1},
    analyze=analyze,
    differences=("The paper clipped at 0.0025; here c is shown as predicted, clipped at 0.",),
)
