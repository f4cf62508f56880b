"""Online learners of the ratio and of the value, for many seeds at once.

A learner is a frozen description. `init(num_seeds)` makes its state, which holds everything needed to resume, and
`update(state, block)` updates that state in place with a block of transitions of every seed; `train` runs a stream of
blocks. The ratio learners also have `step(state, transition)`: the rule in NumPy, for one transition of every seed.
What `update` does is the same, compiled.
"""

from covshift.learners.linear_ratio import (
    ExactSimplex,
    LinearRatio,
    SampledSimplex,
    SoftNormalization,
)
from covshift.learners.linear_value import (
    TDC,
    Emphasis,
    ExactRatio,
    LearnedRatio,
    LinearTD,
    NoCorrection,
    RhoOnly,
)
from covshift.learners.matched_ratio import MatchedRatio
from covshift.learners.online import train
from covshift.learners.schedules import constant, robbins_monro
from covshift.learners.tabular import TabularCorrectedTD, TabularRatio

__all__ = [
    "TDC",
    "Emphasis",
    "ExactRatio",
    "ExactSimplex",
    "LearnedRatio",
    "LinearRatio",
    "LinearTD",
    "MatchedRatio",
    "NoCorrection",
    "RhoOnly",
    "SampledSimplex",
    "SoftNormalization",
    "TabularCorrectedTD",
    "TabularRatio",
    "constant",
    "robbins_monro",
    "train",
]
