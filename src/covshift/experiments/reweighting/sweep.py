"""Resampling, reweighting, and neither."""

from covshift.experiments.experiment import ONE_GAME, Arm, Experiment, every_scale
from covshift.experiments.results import RULE
from covshift.experiments.reweighting.analysis import BASELINE, RESAMPLED, analyze

EXPERIMENT = Experiment(
    name="reweighting",
    aliases=(),
    title="Resampling or reweighting",
    claim="Drawing transitions by c scores more than multiplying the loss by c.",
    paper=(
        "Multiplicatively reweighting the loss hurt performance in initial experiments, likely due to larger "
        "gradient variance; so the paper resamples."
    ),
    rule=RULE
    + "The claim holds if the interval of resampling against reweighting is above ½, and does not hold if it is below.",
    games=ONE_GAME,
    arms=every_scale(
        (
            Arm("no correction", "c51"),
            Arm(BASELINE, "c51-corrected", {"priority": "uniform", "correction": "reweight"}),
            Arm(RESAMPLED, "c51-corrected"),
            Arm("resample by c·ρ", "c51-corrected", {"priority": "ratio-rho"}),
        )
    ),
    seeds={"paper": 5, "small": 3, "smoke": 1},
    analyze=analyze,
)
