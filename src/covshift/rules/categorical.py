"""Distributions of the return on fixed atoms: C51 (Bellemare, Dabney & Munos, 2017)."""

from __future__ import annotations

from typing import Any

import array_api_compat

from covshift.rules.arrays import ArrayT


def categorical_projection(atoms_t: ArrayT, p_t: ArrayT, support: ArrayT) -> ArrayT:
    """Projects a distribution p on moved atoms onto the atoms of the support.

    Each moved atom x_j, clipped to the support's range, splits its mass between its two neighbours, the closer
    one getting more: z_i gets Σ_j clip(1 - |x_j - z_i|/Δz, 0, 1) p_j.

    Args:
        atoms_t: batch × atoms, R + γ z.
        p_t: batch × atoms, their probabilities.
        support: the evenly spaced z.

    Example:
        >>> import numpy as np
        >>> z = np.array([-1.0, 0.0, 1.0])
        >>> categorical_projection(np.array([[0.25, 5.0, 0.0]]), np.array([[0.4, 0.6, 0.0]]), z)
        array([[0. , 0.3, 0.7]])
    """
    xp = array_api_compat.array_namespace(p_t)
    spacing = support[1] - support[0]
    moved = xp.clip(atoms_t, support[0], support[-1])
    distance = xp.abs(moved[..., None, :] - support[:, None]) / spacing
    share = xp.clip(1.0 - distance, 0.0, 1.0)
    projected: ArrayT = (share * p_t[..., None, :]).sum(-1)
    return projected


def categorical_target(
    return_t: ArrayT, discount_t: ArrayT, p_t: ArrayT, support: ArrayT
) -> ArrayT:
    """The projected distribution of R + γ Z(s', a*).

    Args:
        return_t: the rewards until s', summed with their discounts.
        discount_t: γ to the number of steps, 0 where the episode ended.
        p_t: batch × atoms, the distribution at s' of the greedy action.
        support: the atoms.
    """
    atoms_t = return_t[..., None] + discount_t[..., None] * support
    return categorical_projection(atoms_t, p_t, support)


def expected_value(p: ArrayT, support: ArrayT) -> ArrayT:
    """Σ z p(z), the mean of the distribution along the last axis."""
    mean: ArrayT = (p * support).sum(-1)
    return mean


def cross_entropy(p: ArrayT, log_q: ArrayT) -> ArrayT:
    """-Σ p log q along the last axis, the loss per sample."""
    entropy: ArrayT = -(p * log_q).sum(-1)
    return entropy


def chosen(x: ArrayT, action: Any) -> ArrayT:
    """The entry of each sample's action: x[k, action[k]]."""
    xp = array_api_compat.array_namespace(x)
    index = action[(...,) + (None,) * (x.ndim - 1)]
    picked: ArrayT = xp.take_along_axis(x, index, axis=1)[:, 0]
    return picked
