"""The corrected runs of Figure 1, left, looked at again."""

from covshift.experiments.experiment import ONE_GAME, Experiment
from covshift.experiments.mean_ratio.analysis import analyze
from covshift.experiments.ratio_discount.sweep import arms

ARMS = tuple(arm for arm in arms(()) if arm.preset == "c51-corrected")

EXPERIMENT = Experiment(
    name="mean_ratio",
    aliases=("figure-4",),
    title="The mean ratio under the learned policy",
    claim="The mean predicted ratio in the agent's own episodes falls towards 0 as γ̂ grows.",
    paper=(
        "The average predicted ratio in evaluation episodes decreases with γ̂. With coverage the true E_π[c] is at "
        "least E_μ[c], so that a mean near 0 is underestimation (B3)."
    ),
    rule=(
        "The value of a run is its mean of E_π[c] over the last 3 evaluations. The claim holds if the interquartile "
        "mean of the largest γ̂ is below that of the smallest with 95 % bootstrap intervals that do not overlap, does "
        "not hold if it is above with such intervals, and else the data do not say; fewer than three seeds say nothing."
    ),
    games=ONE_GAME,
    arms={"paper": ARMS, "small": ARMS, "smoke": ARMS},
    seeds={"paper": 5, "small": 5, "smoke": 1},
    analyze=analyze,
    differences=("Episodes are of π itself (ε = 0.1), whose ratio c is.",),
)
