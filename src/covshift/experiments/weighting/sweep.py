"""Uniform, prioritized and 1/c-weighted learning of the ratio in the deep agent."""

from covshift.experiments.experiment import ONE_GAME, Arm, Experiment, every_scale
from covshift.experiments.results import RULE
from covshift.experiments.weighting.analysis import BASELINE, analyze

EXPERIMENT = Experiment(
    name="weighting",
    aliases=(),
    title="From which states the ratio is learned",
    claim="Learning the ratio from prioritized batches is unstable; 1/c weighting is not, and scores no less.",
    paper=(
        "Learning the ratio with prioritized sampling led to stability issues; which distribution it should be "
        "learned from is left open. B1 proves a contraction under 1/c, with exact weights and features."
    ),
    rule=RULE
    + "Unstable means that a run diverged or that the median squared ratio error over seeds ends more than twice as high "
    "as uniform's. The claim holds if prioritized is unstable, 1/c is not, and the interval of 1/c against uniform reaches ½ or "
    "more; it does not hold if prioritized is stable or 1/c is unstable.",
    games=ONE_GAME,
    arms=every_scale(
        (
            Arm(BASELINE, "c51-corrected"),
            Arm("prioritized", "c51-corrected", {"ratio_batch": "prioritized"}),
            Arm("1/c", "c51-corrected", {"ratio_weighting": "inverse"}),
            Arm("1/c, positive head, both refreshed (c51-dual)", "c51-dual"),
        )
    ),
    seeds={"paper": 5, "small": 5, "smoke": 1},
    analyze=analyze,
)
