"""Returns over several steps that are corrected for off-policy data: Retrace (Munos et al., 2016; Gruslys et al., 2018)."""

from __future__ import annotations

import array_api_compat

from covshift.rules.arrays import ArrayT
from covshift.rules.categorical import categorical_target


def retrace_coefficient(rho: ArrayT, decay: ArrayT | float) -> ArrayT:
    """λ min(1, ρ), the share of a trace that passes on through an action.

    Example:
        >>> import numpy as np
        >>> retrace_coefficient(np.array([0.5, 4.0]), 0.9)
        array([0.45, 0.9 ])
    """
    xp = array_api_compat.array_namespace(rho)
    passed: ArrayT = decay * xp.clip(rho, None, 1.0)
    return passed


def retrace_target(
    returns: ArrayT,
    discounts: ArrayT,
    p_pi: ArrayT,
    p_taken: ArrayT,
    traces: ArrayT,
    support: ArrayT,
) -> ArrayT:
    """The distributional Retrace target of the transition from s₀ to s₁, over at most n steps.

    Σ_{k=1..n} (Π_{j<k} c_j) Proj(R_k + γᵏ Z_k), where Z_k has the signed distribution
    Σ_a π(a|s_k) p(s_k, a) - c_k p(s_k, a_k), c_k is `retrace_coefficient` of the action taken in s_k, R_k is the
    discounted sum of the first k rewards, and c_n = 0. These are the coefficients
    α_{k,a} = (Π_{j<k} c_j)(π(a|s_k) - 1{a = a_k} c_k) of Gruslys et al., eq. (4): they sum to 1, and their mean over
    μ's actions is not negative, but one sample's can be. The mean of the target is Retrace's, so that the expected
    operator has the fixed point Q^π for every λ and n, as far as no atom is clipped at the ends of the support.

    Args:
        returns: n × batch, R_1 … R_n.
        discounts: n × batch, γ … γⁿ; 0 from where the episode ended.
        p_pi: n × batch × atoms, the mean of the distributions in s_1 … s_n over π's actions.
        p_taken: (n - 1) × batch × atoms, the distributions of the actions taken in s_1 … s_{n-1}.
        traces: (n - 1) × batch, c_1 … c_{n-1}; 0 where no action was taken.
        support: the atoms.

    Returns:
        batch × atoms; with n = 1 the one-step target.
    """
    xp = array_api_compat.array_namespace(returns)
    target: ArrayT = categorical_target(returns[0], discounts[0], p_pi[0], support)
    trace: ArrayT = xp.ones_like(returns[0])
    for k in range(1, returns.shape[0]):
        # What was bootstrapped from the action taken in s_k is replaced by what followed it.
        trace = trace * traces[k - 1]
        followed = categorical_target(returns[k], discounts[k], p_pi[k], support)
        replaced = categorical_target(returns[k - 1], discounts[k - 1], p_taken[k - 1], support)
        target = target + trace[..., None] * (followed - replaced)
    return target
