"""One equation, one function, one name.

Rules are plain arithmetic, so NumPy arrays and torch tensors both pass through. They return targets
or errors a sample; who assembles a loss reduces, weights, clips and stops gradients.

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
from covshift.rules.policies import epsilon_greedy_probabilities, importance_ratio
from covshift.rules.ratio import (
    cop_error,
    cop_target,
    discounted_cop_error,
    discounted_cop_target,
    initial_state_target,
    linear_cop_direction,
    n_step_cop_target,
    squared_ratio_error,
)
from covshift.rules.value import (
    corrected_td_error,
    followon_trace,
    importance_weighted_td_error,
    linear_direction,
    td_error,
    tdc_correction,
)

__all__ = [
    "EXPONENTIAL",
    "LINKS",
    "SAFE",
    "Link",
    "arrival_target",
    "categorical_projection",
    "categorical_target",
    "chosen",
    "clipped_policy",
    "cop_error",
    "cop_target",
    "corrected_td_error",
    "cross_entropy",
    "discounted_cop_error",
    "discounted_cop_target",
    "epsilon_greedy_probabilities",
    "expected_value",
    "floored_ratio",
    "followon_trace",
    "importance_ratio",
    "importance_weighted_td_error",
    "initial_state_target",
    "leave_one_out_residual",
    "linear_cop_direction",
    "linear_direction",
    "mass_closure",
    "matching_gradient",
    "matching_loss",
    "n_step_cop_target",
    "normalization_gradient",
    "normalization_loss",
    "one_sided_residual",
    "squared_ratio_error",
    "td_error",
    "tdc_correction",
]
