"""A positive ratio fitted by its matching loss, which keeps the mean of the targets (B7).

The model predicts a score z, a link g turns it into the ratio c = g(z) > 0, and the loss is G(z) - T z with
G' = g. Its derivative in z is c - T, so that a score with a bias is fitted exactly when E[c] = E[T], whatever
the link. Everything is computed from z: a ratio may underflow to 0 and is never divided by, nor is its logarithm
taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import array_api_compat

from covshift.errors import InputError
from covshift.rules.arrays import ArrayT
from covshift.rules.ratio import initial_state_target, n_step_cop_target


class LinkOverflowError(InputError):
    """A score is so large that its ratio is no finite number."""


class Link(Protocol):
    """An increasing function g that turns a score z into a positive ratio."""

    def ratio(self, z: ArrayT) -> ArrayT:
        """g(z)."""

    def integral(self, z: ArrayT) -> ArrayT:
        """G(z) with G' = g."""

    def slope(self, z: ArrayT) -> ArrayT:
        """g'(z), the curvature of the matching loss."""


@final
@dataclass(frozen=True)
class Exponential:
    """g(z) = G(z) = e^z. The matching loss is then that of Poisson regression.

    Raises:
        LinkOverflowError: e^z is too large for the numbers' type.
    """

    def ratio(self, z: ArrayT) -> ArrayT:
        """e^z."""
        xp = array_api_compat.array_namespace(z)
        highest = math.log(xp.finfo(z.dtype).max)
        if bool((z > highest).any()):
            raise LinkOverflowError(
                f"the exponential link overflows at z = {z.max().item():.6g} (the highest possible is "
                f"{highest:.4g}): use the safe link, a smaller step size or smaller features"
            )
        result: ArrayT = xp.exp(z)
        return result

    def integral(self, z: ArrayT) -> ArrayT:
        """e^z."""
        return self.ratio(z)

    def slope(self, z: ArrayT) -> ArrayT:
        """e^z."""
        return self.ratio(z)


@final
@dataclass(frozen=True)
class Safe:
    """g(z) = e^z for z < 0 and 1 + z above: grows like a line where an exponential would overshoot.

    G(z) = e^z for z < 0 and 1 + z + z²/2 above.
    """

    def ratio(self, z: ArrayT) -> ArrayT:
        """e^min(z, 0) + max(z, 0)."""
        low, high = _split(z)
        xp = array_api_compat.array_namespace(z)
        result: ArrayT = xp.exp(low) + high
        return result

    def integral(self, z: ArrayT) -> ArrayT:
        """e^min(z, 0) + max(z, 0) + max(z, 0)²/2."""
        low, high = _split(z)
        xp = array_api_compat.array_namespace(z)
        result: ArrayT = xp.exp(low) + high + 0.5 * high**2
        return result

    def slope(self, z: ArrayT) -> ArrayT:
        """e^min(z, 0), at most 1."""
        low, _ = _split(z)
        xp = array_api_compat.array_namespace(z)
        result: ArrayT = xp.exp(low)
        return result


EXPONENTIAL = Exponential()
SAFE = Safe()
LINKS: dict[str, Link] = {"exponential": EXPONENTIAL, "safe": SAFE}


def matching_loss(z_t: ArrayT, target_t: ArrayT, link: Link) -> ArrayT:
    """G(z) - T z per sample; the caller stops the target's gradient.

    Args:
        z_t: the score at s'.
        target_t: T, what the ratio g(z) is fitted to.
        link: g.

    Example:
        >>> import numpy as np
        >>> matching_loss(np.array([0.0, 1.0]), np.array([5.0, 2.0]), SAFE)
        array([1. , 0.5])
    """
    return link.integral(z_t) - target_t * z_t


def matching_gradient(z_t: ArrayT, target_t: ArrayT, link: Link) -> ArrayT:
    """g(z) - T, the derivative of the matching loss in the score z.

    Example:
        >>> import numpy as np
        >>> matching_gradient(np.array([0.0, 1.0]), np.array([5.0, 2.0]), SAFE)
        array([-4.,  0.])
    """
    return link.ratio(z_t) - target_t


def floored_ratio(arrivals_t: ArrayT, ratio_discount: float) -> ArrayT:
    """c = 1 - γ̂ + γ̂ x, where x = g(z) models what arrives by transitions.

    Every exact ratio is at least 1 - γ̂, and so is this one: it can neither be negative nor underflow.
    """
    return ratio_discount * arrivals_t + (1.0 - ratio_discount)


def arrival_target(
    c_start: ArrayT,
    rhos: Sequence[ArrayT],
    ratio_discount: float,
    is_initial: Sequence[Any] | None = None,
) -> ArrayT:
    """The target for x = g(z) where c = 1 - γ̂ + γ̂ x: ρ c(s), and 1 where an episode starts.

    Over several steps the c(s) of the last one is the n-step target of the steps before it. Either way
    1 - γ̂ + γ̂ times this target is the target for c, so that γ̂ times the gradient x - target is c - T.

    Args:
        c_start: c(s_t), the ratio at the window's first state.
        rhos: ρ_t … ρ_{t+n-1}, oldest first.
        ratio_discount: γ̂.
        is_initial: for each of s_{t+1} … s_{t+n} whether it starts an episode.

    Example:
        >>> import numpy as np
        >>> arrival_target(np.array([3.0]), [np.array([0.5])], 0.9)
        array([1.5])
    """
    earlier = None if is_initial is None else is_initial[:-1]
    c_tm1 = n_step_cop_target(c_start, rhos[:-1], ratio_discount, earlier)
    target = rhos[-1] * c_tm1
    return target if is_initial is None else initial_state_target(target, is_initial[-1])


def mass_closure(
    mean_ratio: ArrayT, mean_ended: ArrayT, initial_share: ArrayT | float, ratio_discount: float
) -> ArrayT:
    """The factor α that gives a positive ratio c̃ of any size the balance of an exact one.

    α = (1 - γ̂ + γ̂p₀) / ((1 - γ̂) E_μ[c̃] + γ̂ E_μ[ρc̃; the episode ends]). The numerator is the mass that enters c
    at a state of the stream, the denominator what leaves c̃; for c̃ = k·c it is 1/k. Nothing leaves at γ̂ = 1 where no
    episode ends: then no factor balances c̃.

    Args:
        mean_ratio: E_μ[c̃].
        mean_ended: E_μ[ρc̃; ends], the mean of ρc̃ with 0 where the transition ends no episode.
        initial_share: p₀, the share of states that start an episode; 0 in a continuing problem or with restarts.
        ratio_discount: γ̂.

    Example:
        >>> round(mass_closure(mean_ratio=4.0, mean_ended=0.0, initial_share=0.0, ratio_discount=0.9), 6)
        0.25
    """
    leaves = (1.0 - ratio_discount) * mean_ratio + ratio_discount * mean_ended
    return (1.0 - ratio_discount + ratio_discount * initial_share) / leaves


def clipped_policy(pi: ArrayT, mu: ArrayT, rho_clip: float) -> ArrayT:
    """π_k ∝ min(π, kμ) along the last axis, the policy that a clip of ρ at k stands for.

    Its own ratio π_k/μ = min(ρ, k)/Σ_a min(π(a|s), kμ(a|s)) averages 1 under μ in every state, where min(ρ, k)
    averages less and so loses mass at each step. μ covers π_k even where it does not cover π.

    Args:
        pi: probabilities of the target policy.
        mu: probabilities of the behavior policy.
        rho_clip: k; where no ρ is larger, π_k is π.

    Raises:
        InputError: k is not positive, or π takes no action that μ takes.

    Example:
        >>> import numpy as np
        >>> clipped_policy(np.array([0.9, 0.1]), np.array([0.3, 0.7]), 1.0)
        array([0.75, 0.25])
    """
    if not rho_clip > 0.0:
        raise InputError(f"rho_clip must be positive, but it is {rho_clip}")
    xp = array_api_compat.array_namespace(pi, mu)
    kept = xp.minimum(pi, rho_clip * mu)
    total = kept.sum(-1)[..., None]
    if bool((total <= 0.0).any()):
        raise InputError(
            "pi takes no action that mu takes in some state, so that its clipped ratio sums to 0; collect data with a mu "
            "that takes every action"
        )
    policy: ArrayT = kept / total
    return policy


def _split(z: ArrayT) -> tuple[ArrayT, ArrayT]:
    """min(z, 0) and max(z, 0). At 0 autograd gives half the derivative to each, so that their sum has 1."""
    xp = array_api_compat.array_namespace(z)
    zero = xp.zeros_like(z)
    return xp.minimum(z, zero), xp.maximum(z, zero)
