"""Deep learners: C51 with a learned covariate shift, and the ratio of a fixed policy alone."""

from covshift.extras import require

require("torch")

from covshift.learners.deep.agent import AgentLearner, Diverged
from covshift.learners.deep.batches import (
    EndBatch,
    RatioBatch,
    ValueBatch,
    end_batch,
    ratio_batch,
    ring_batch,
    value_batch,
)
from covshift.learners.deep.losses import REPORTED_MEANS, AgentLoss
from covshift.learners.deep.priorities import Priority, UpdateReport, make_priority
from covshift.learners.deep.ratio import RatioLearner, RatioLoss
from covshift.learners.deep.recorded import Batches
from covshift.learners.deep.stack import AgentStack, stack_key
from covshift.learners.deep.state import LearnerState

__all__ = [
    "REPORTED_MEANS",
    "AgentLearner",
    "AgentLoss",
    "AgentStack",
    "Batches",
    "Diverged",
    "EndBatch",
    "LearnerState",
    "Priority",
    "RatioBatch",
    "RatioLearner",
    "RatioLoss",
    "UpdateReport",
    "ValueBatch",
    "end_batch",
    "make_priority",
    "ratio_batch",
    "ring_batch",
    "stack_key",
    "value_batch",
]
