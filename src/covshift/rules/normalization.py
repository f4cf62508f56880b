"""The soft constraint E_μ[c] = 1: eq. (7), its gradient eq. (8), and Theorem 5's estimate."""

from __future__ import annotations

from covshift.errors import InputError
from covshift.rules.arrays import ArrayT


def normalization_loss(mean_ratio: ArrayT) -> ArrayT:
    """½ (E_μ[c] - 1)²; eq. (7)."""
    return 0.5 * (mean_ratio - 1.0) ** 2


def normalization_gradient(mean_ratio: ArrayT, mean_gradient: ArrayT) -> ArrayT:
    """(E_μ[c] - 1) E_μ[∇c]; eq. (8)."""
    return (mean_ratio - 1.0) * mean_gradient


def leave_one_out_residual(c: ArrayT) -> ArrayT:
    """1/(m-1) Σ_{j≠i} c(s_j) - 1 for each i of a batch along the last axis; Theorem 5.

    The mean of residual · ∇c(s_i) over the batch is an unbiased estimate of eq. (8), if the states
    are independent draws from d_μ. With automatic differentiation: the mean of residual · c(s_i),
    the residual's gradient stopped.

    Example:
        >>> import numpy as np
        >>> leave_one_out_residual(np.array([1.0, 2.0, 6.0]))
        array([3. , 2.5, 0.5])
    """
    others = _others(c)
    residual: ArrayT = (c.sum(-1)[..., None] - c) / others - 1.0
    return residual


def one_sided_residual(c: ArrayT) -> ArrayT:
    """1/(m-1) Σ_{j≥2} c(s_j) - 1, to be multiplied by ∇c(s_1): unbiased, but with a larger variance."""
    others = _others(c)
    residual: ArrayT = c[..., 1:].sum(-1) / others - 1.0
    return residual


def _others(c: ArrayT) -> int:
    size = int(c.shape[-1])
    if size < 2:
        raise InputError(f"the estimate needs a batch of at least 2 states, but it has {size}")
    return size - 1
