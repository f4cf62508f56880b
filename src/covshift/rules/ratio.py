"""Learning the ratio c(s) = d_π(s)/d_μ(s) by bootstrapping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import array_api_compat

from covshift.rules.arrays import ArrayT


def discounted_cop_target(c_tm1: ArrayT, rho_tm1: ArrayT, ratio_discount: float) -> ArrayT:
    """γ̂ ρ c(s) + (1 - γ̂), the bootstrap target for c(s'); eq. (6), and at γ̂ = 1 COP-TD's, eq. (4).

    Args:
        c_tm1: ratio of the state before, from the network that targets come from.
        rho_tm1: π(a|s)/μ(a|s) of the action taken there.
        ratio_discount: γ̂ in [0, 1].

    Example:
        >>> import numpy as np
        >>> discounted_cop_target(np.array([2.0]), np.array([0.5]), 0.9)
        array([1.])
    """
    return ratio_discount * (rho_tm1 * c_tm1) + (1.0 - ratio_discount)


def initial_state_target(target_t: ArrayT, is_initial_t: Any) -> ArrayT:
    """1 where s_t starts an episode, else the given target.

    No transition leads to an initial state, and the distribution of initial states is the same under
    every policy.
    """
    xp = array_api_compat.array_namespace(target_t)
    result: ArrayT = xp.where(is_initial_t, xp.ones_like(target_t), target_t)
    return result


def n_step_cop_target(
    c_start: ArrayT,
    rhos: Sequence[ArrayT],
    ratio_discount: float,
    is_initial: Sequence[Any] | None = None,
) -> ArrayT:
    """The target for c(s_{t+n}) from c(s_t) and the n importance ratios between (B4).

    (1 - γ̂) Σ_{i<n} γ̂ⁱ Π_{j=n-i}^{n-1} ρ_{t+j} + γ̂ⁿ (Π_{j<n} ρ_{t+j}) c(s_t): the one-step rule
    applied n times, forward along the window, so that the partial products take the latest ρ's.

    Args:
        c_start: c(s_t), the ratio at the window's first state.
        rhos: ρ_t … ρ_{t+n-1}, oldest first.
        ratio_discount: γ̂.
        is_initial: for each of s_{t+1} … s_{t+n} whether it starts an episode; from there on the target is
            bootstrapped from ratio 1.
    """
    target = c_start
    for step, rho_tm1 in enumerate(rhos):
        target = discounted_cop_target(target, rho_tm1, ratio_discount)
        if is_initial is not None:
            target = initial_state_target(target, is_initial[step])
    return target


def squared_ratio_error(target_t: ArrayT, c_t: ArrayT) -> ArrayT:
    """(target - c(s'))², the loss of eq. (9) per sample; the caller stops the target's gradient."""
    return (target_t - c_t) ** 2


def inverse_ratio_weight(c_t: ArrayT, floor: float | ArrayT) -> ArrayT:
    """1/max(c(s'), floor), the weight of the squared error at s' under which discounted COP-TD contracts (B1).

    Example:
        >>> import numpy as np
        >>> inverse_ratio_weight(np.array([2.0, -1.0]), 0.1)
        array([ 0.5, 10. ])
    """
    xp = array_api_compat.array_namespace(c_t)
    weight: ArrayT = 1.0 / xp.clip(c_t, floor, None)
    return weight


def ratio_moment(
    from_starts: float, from_states: float, initial_share: float, ratio_discount: float
) -> float:
    """E_μ[c f] without the ratio: γ̂ p₀ E[Σ γ̂ᵗ f(s_t) | s_0 ~ d₀] + (1 - γ̂) E[Σ γ̂ᵗ f(s_t) | s_0 ~ d_μ], where s_t follows π (B6).

    The mass of the ratio enters at starts and everywhere, and flows with π. For f = 1 it is the mean ratio.

    Args:
        from_starts: the first mean, over episodes of π from their start.
        from_states: the second mean, over episodes of π from states of the data.
        initial_share: p₀, the share of states that start an episode.
        ratio_discount: γ̂.

    Example:
        >>> ratio_moment(from_starts=5.0, from_states=4.0, initial_share=0.5, ratio_discount=0.5)
        3.25
    """
    return ratio_discount * initial_share * from_starts + (1.0 - ratio_discount) * from_states
