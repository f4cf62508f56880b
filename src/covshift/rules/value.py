"""Learning a value: TD, its correction for off-policy data, emphatic TD and TDC."""

from __future__ import annotations

from covshift.rules.arrays import ArrayT


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


def linear_direction(error: ArrayT, phi: ArrayT) -> ArrayT:
    """Error · φ, the step of a linear prediction along its features."""
    return error[..., None] * phi
