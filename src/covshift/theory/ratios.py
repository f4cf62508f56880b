"""Exact covariate shifts: d̂_π, c = d_π/d_μ and d̂_π/d_μ, and measures of how far apart the distributions are."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from covshift.errors import InputError
from covshift.theory.chain import MarkovChain
from covshift.validation import (
    Dense,
    Vector,
    as_occupancy,
    as_policy,
    as_table,
    as_vector,
    check_discount,
    name_states,
)


def d_pi_hat(chain_pi: MarkovChain, d_mu: ArrayLike, ratio_discount: float) -> Vector:
    """The distribution that discounted COP-TD corrects to.

    Continuing: d̂_π = (1 - γ̂)(I - γ̂P_πᵀ)⁻¹ d_μ, the stationary distribution of the reset chain
    (Proposition 1). Episodic (`visits`): (I - γ̂P_πᵀ)⁻¹ (γ̂ d₀ + (1 - γ̂) d_μ), where d_μ counts
    visits. At γ̂ = 1 both are d_π.

    Args:
        chain_pi: the chain under the target policy.
        d_mu: occupancy of the behavior policy, of the same kind as the chain's.
        ratio_discount: γ̂ in [0, 1].

    Reference: Proposition 1; eq. (11) for episodes.
    """
    check_discount("ratio_discount", ratio_discount)
    behavior = _behavior(chain_pi, d_mu)
    if ratio_discount == 1.0:
        return chain_pi.occupancy()
    source = (1.0 - ratio_discount) * behavior
    if chain_pi.d_0 is not None:
        source = source + ratio_discount * chain_pi.d_0
    mass = np.maximum(chain_pi.resolvent(ratio_discount).solve_transposed(source), 0.0)
    # A continuing chain keeps its mass of 1; dividing by the sum removes the rounding errors of γ̂ → 1.
    return mass if chain_pi.is_episodic else mass / mass.sum()


def c_star(chain_pi: MarkovChain, d_mu: ArrayLike, ratio_discount: float = 1.0) -> Vector:
    """The exact covariate shift d̂_π/d_μ; with `ratio_discount` 1 it is d_π/d_μ.

    A state that neither policy visits has ratio 0.

    Raises:
        InputError: some state has mass under π and none under μ.
    """
    behavior = _behavior(chain_pi, d_mu)
    target = d_pi_hat(chain_pi, behavior, ratio_discount)
    uncovered = np.flatnonzero((behavior <= 0) & (target > 1e-14))
    if len(uncovered):
        raise InputError(
            f"d_mu does not cover d_pi: the target policy puts mass {target[uncovered].sum():.6g} "
            f"on the states {name_states(uncovered)}, where d_mu is 0"
        )
    return np.divide(target, behavior, out=np.zeros_like(target), where=behavior > 0)


def rho(pi: ArrayLike, mu: ArrayLike) -> Dense:
    """ρ(s, a) = π(a|s)/μ(a|s) as a table; 0 where neither policy takes the action.

    Raises:
        InputError: μ never takes an action that π takes.
    """
    target = as_table("pi", pi, (-1, -1))
    target = as_policy("pi", target, *target.shape)
    behavior = as_policy("mu", mu, *target.shape)
    missing = np.argwhere((behavior == 0) & (target > 0))
    if len(missing):
        state, action = missing[0]
        raise InputError(
            f"mu does not cover pi: in state {state} the target policy takes action {action} with "
            f"probability {target[state, action]:.6g} and the behavior policy never does "
            f"({len(missing)} such pairs)"
        )
    return np.divide(target, behavior, out=np.zeros_like(target), where=behavior > 0)


def effective_sample_share(c: ArrayLike, d_mu: ArrayLike) -> float:
    """ESS/N = E_μ[c]² / E_μ[c²], the effective share of a sample that is weighted by c."""
    ratio = as_table("c", c, (-1,))
    behavior = as_vector("d_mu", d_mu, len(ratio))
    behavior = behavior / behavior.sum()
    return float((behavior @ ratio) ** 2 / (behavior @ ratio**2))


def chi_squared(d: ArrayLike, d_mu: ArrayLike) -> float:
    """χ²(d‖d_μ) = Σ d²/d_μ - 1 for two probability vectors."""
    first = as_table("d", d, (-1,))
    second = as_vector("d_mu", d_mu, len(first))
    where = first > 0
    if (second[where] <= 0).any():
        return float("inf")
    return float((first[where] ** 2 / second[where]).sum() - 1.0)


def _behavior(chain_pi: MarkovChain, d_mu: ArrayLike) -> Vector:
    return as_occupancy("d_mu", d_mu, chain_pi.num_states, episodic=chain_pi.is_episodic)
