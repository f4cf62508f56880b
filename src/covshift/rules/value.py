"""Learning a value: TD, its correction for off-policy data, emphatic TD and TDC."""

from __future__ import annotations

from typing import Any

import array_api_compat

from covshift.rules.arrays import ArrayT
from covshift.rules.categorical import chosen


def td_error(v_tm1: ArrayT, r_t: ArrayT, discount_t: ArrayT, v_t: ArrayT) -> ArrayT:
    """R + γ V(s') - V(s); eq. (2). The discount is 0 where s' is terminal."""
    return r_t + discount_t * v_t - v_tm1


def td_correction(rho_tm1: ArrayT, c_tm1: ArrayT) -> ArrayT:
    """c(s) ρ: times the TD error it gives in expectation TD under d_π; c alone would not (E14)."""
    return c_tm1 * rho_tm1


def followon_trace(trace_tm1: ArrayT, rho_tm1: ArrayT, trace_discount: float) -> ArrayT:
    """β ρ F + 1, the follow-on trace of emphatic TD(0) with unit interest.

    On a continuing stream with β = γ̂ its expectation given the state is c(s)/(1 - γ̂) (B2); its variance
    may be infinite.
    """
    return trace_discount * rho_tm1 * trace_tm1 + 1.0


def tdc_correction(
    h: ArrayT, phi_tm1: ArrayT, phi_t: ArrayT, rho_tm1: ArrayT, discount_t: ArrayT
) -> ArrayT:
    """-ρ γ (φ(s)ᵀh) φ(s'), what TDC adds to the ρ-weighted TD step."""
    return linear_direction(-rho_tm1 * discount_t * (phi_tm1 * h).sum(-1), phi_t)


def conservative_gap(q: ArrayT, action: Any) -> ArrayT:
    """log Σ_a exp Q(s, a) - Q(s, A), the penalty of conservative Q-learning (Kumar et al., 2020), per sample.

    It is 0 where the action A that the data took has all the value, and its gradient softmax(Q) - 1[a = A] lowers the
    values of actions that the data do not show.

    Args:
        q: batch × actions.
        action: the action that the data took in each sample.

    Example:
        >>> import numpy as np
        >>> conservative_gap(np.array([[0.0, 0.0], [50.0, 0.0]]), np.array([0, 0])).round(4).tolist()
        [0.6931, 0.0]
    """
    xp = array_api_compat.array_namespace(q)
    top = xp.max(q, axis=-1, keepdims=True)
    gap: ArrayT = top[..., 0] + xp.log(xp.exp(q - top).sum(-1)) - chosen(q, action)
    return gap


def linear_direction(error: ArrayT, phi: ArrayT) -> ArrayT:
    """Error · φ, the step of a linear prediction along its features."""
    return error[..., None] * phi
