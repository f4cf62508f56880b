"""Deep learners: C51 with a learned covariate shift, and the ratio of a fixed policy alone."""

from covshift.learners.deep.agent import AgentLearner, Diverged, UpdateReport
from covshift.learners.deep.batches import (
    RatioBatch,
    ValueBatch,
    ratio_batch,
    ring_batch,
    value_batch,
)
from covshift.learners.deep.ratio import RatioLearner, RatioLoss

__all__ = [
    "AgentLearner",
    "Diverged",
    "RatioBatch",
    "RatioLearner",
    "RatioLoss",
    "UpdateReport",
    "ValueBatch",
    "ratio_batch",
    "ring_batch",
    "value_batch",
]
