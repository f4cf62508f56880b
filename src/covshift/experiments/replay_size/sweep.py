"""Smaller replays, and tempered or mixed priorities."""

from covshift.experiments.experiment import ONE_GAME, Arm, Experiment
from covshift.experiments.replay_size.analysis import FULL, analyze
from covshift.experiments.results import RULE

SIZES = {
    "paper": (10_000_000, 1_000_000),
    "small": (300_000, 30_000),
    "smoke": (2_000, 500),
}


def arms(scale: str) -> tuple[Arm, ...]:
    """The whole replay, the newest part of it, and that part with softer priorities."""
    _, part = SIZES[scale]
    return (
        Arm(FULL, "c51-corrected"),
        Arm("a part", "c51-corrected", {"window": part}),
        Arm("a part, no correction", "c51", {"window": part}),
        Arm("a part, τ = ½", "c51-corrected", {"window": part, "priority_tempering": 0.5}),
        Arm("a part, half uniform", "c51-corrected", {"window": part, "uniform_share": 0.5}),
    )


EXPERIMENT = Experiment(
    name="replay_size",
    aliases=(),
    title="Replay size, tempering and overfitting",
    claim="A smaller replay hurts the corrected agent, since drawing by c leaves a share of it only.",
    paper=(
        "Large portions of the dataset are mostly ignored, so that the effective size is reduced and overfitting is "
        "risked; a replay of 10 million frames was taken to mitigate it. No numbers are given."
    ),
    rule=RULE
    + "The claim holds if the interval of the whole replay against the part is above ½, and does not hold if it is below.",
    games=ONE_GAME,
    arms={scale: arms(scale) for scale in SIZES},
    seeds={"paper": 3, "small": 3, "smoke": 1},
    analyze=analyze,
)
