"""The paper's linear head with clipped sources, without the clip, a positive head, and weights 1/c with either."""

from covshift.experiments.experiment import ONE_GAME, Arm, Experiment, every_scale
from covshift.experiments.ratio_scale.analysis import BASELINE, UNCLIPPED, analyze

EXPERIMENT = Experiment(
    name="ratio_scale",
    aliases=(),
    title="What keeps the ratio's scale",
    claim="Clipping negative ratios in targets makes E_μ[c] pass what any policy can have; without the clip it stays below.",
    paper=(
        "Wherever a ratio is a priority or bootstrapped from, negative outputs are clipped at 0. B6 bounds E_μ[c] by "
        "1 + γ̂p₀/(1 - γ̂), p₀ the share of states that start an episode, and shows a linear fit that the clip makes "
        "diverge."
    ),
    rule=(
        "The value of a run is its mean of E_μ[max(c, 0)] over the last 3 rows. The claim holds if the 95 % bootstrap interval of "
        "the interquartile mean is above the bound with the clip and below it without, does not hold if it is below "
        "with the clip or above without, and else the data do not say; fewer than three seeds say nothing."
    ),
    games=ONE_GAME,
    arms=every_scale(
        (
            Arm(BASELINE, "c51-corrected"),
            Arm(UNCLIPPED, "c51-corrected", {"source_clip": False}),
            Arm("positive head", "c51-corrected", {"ratio_head": "softplus"}),
            Arm("1/c", "c51-corrected", {"ratio_weighting": "inverse"}),
            Arm("1/c, positive head (c51-dual)", "c51-dual"),
        )
    ),
    seeds={"paper": 5, "small": 3, "smoke": 1},
    analyze=analyze,
)
