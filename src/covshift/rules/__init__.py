"""The learning rules: each equation is one function.

Rules are plain arithmetic, so NumPy arrays and torch tensors both pass through. They return targets or errors per
sample; the caller that assembles a loss reduces, weights, clips and stops gradients.

Time is in the name: `s_tm1, a_tm1` lead to `s_t`. COP-TD learns backwards: the error of c(s_t) is
corrected from c(s_tm1).
"""

from covshift.rules.categorical import (
    categorical_projection,
    categorical_target,
    chosen,
    cross_entropy,
    expected_value,
)
from covshift.rules.matching import (
    EXPONENTIAL,
    LINKS,
    SAFE,
    Link,
    LinkOverflowError,
    arrival_target,
    clipped_policy,
    floored_ratio,
    mass_closure,
    matching_gradient,
    matching_loss,
)
from covshift.rules.normalization import (
    leave_one_out_residual,
    normalization_gradient,
    normalization_loss,
    one_sided_residual,
)
from covshift.rules.policies import (
    decayed_epsilon,
    epsilon_greedy_probabilities,
    importance_ratio,
)
from covshift.rules.ratio import (
    discounted_cop_target,
    initial_state_target,
    inverse_ratio_weight,
    n_step_cop_target,
    ratio_moment,
    squared_ratio_error,
)
from covshift.rules.retrace import retrace_coefficient, retrace_target
from covshift.rules.value import (
    conservative_gap,
    followon_trace,
    linear_direction,
    td_correction,
    td_error,
    tdc_correction,
)

__all__ = [
    "EXPONENTIAL",
    "LINKS",
    "SAFE",
    "Link",
    "LinkOverflowError",
    "arrival_target",
    "categorical_projection",
    "categorical_target",
    "chosen",
    "clipped_policy",
    "conservative_gap",
    "cross_entropy",
    "decayed_epsilon",
    "discounted_cop_target",
    "epsilon_greedy_probabilities",
    "expected_value",
    "floored_ratio",
    "followon_trace",
    "importance_ratio",
    "initial_state_target",
    "inverse_ratio_weight",
    "leave_one_out_residual",
    "linear_direction",
    "mass_closure",
    "matching_gradient",
    "matching_loss",
    "n_step_cop_target",
    "normalization_gradient",
    "normalization_loss",
    "one_sided_residual",
    "ratio_moment",
    "retrace_coefficient",
    "retrace_target",
    "squared_ratio_error",
    "td_correction",
    "td_error",
    "tdc_correction",
]
