"""Learners: a state record and a step that updates it, many seeds at once.

A learner is a frozen description. `init(num_seeds)` makes its state, which holds all that a resume
needs, and `step(state, transition)` updates that state in place for every seed.
"""

from covshift.learners.linear_ratio import (
    ExactSimplex,
    LeastSquaresRatio,
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
from covshift.learners.online import train
from covshift.learners.schedules import constant, robbins_monro
from covshift.learners.tabular import TabularCorrectedTD, TabularRatio

__all__ = [
    "TDC",
    "Emphasis",
    "ExactRatio",
    "ExactSimplex",
    "LearnedRatio",
    "LeastSquaresRatio",
    "LinearRatio",
    "LinearTD",
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
