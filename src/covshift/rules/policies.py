"""Probabilities of actions."""

from __future__ import annotations

import array_api_compat

from covshift.rules.arrays import ArrayT


def epsilon_greedy_probabilities(q: ArrayT, epsilon: float) -> ArrayT:
    """(1 - ε) on the first best action, and ε spread over all, along the last axis.

    Example:
        >>> import numpy as np
        >>> epsilon_greedy_probabilities(np.array([0.0, 3.0]), 0.1)
        array([0.05, 0.95])
    """
    xp = array_api_compat.array_namespace(q)
    actions = xp.arange(q.shape[-1], device=array_api_compat.device(q))
    greedy = xp.argmax(q, axis=-1)[..., None] == actions
    result: ArrayT = epsilon / q.shape[-1] + (1.0 - epsilon) * xp.astype(greedy, q.dtype)
    return result


def decayed_epsilon(step: int, warm_up: int, decay: int, final: float) -> float:
    """1 for the first `warm_up` steps, then linearly down to `final` over `decay` steps, and `final` from there on.

    Example:
        >>> [decayed_epsilon(step, 100, 50, 0.5) for step in (0, 100, 125, 150, 1000)]
        [1.0, 1.0, 0.75, 0.5, 0.5]
    """
    left = min(1.0, max(0.0, 1.0 - (step - warm_up) / decay))
    return final + (1.0 - final) * left


def importance_ratio(pi_a: ArrayT, mu_a: ArrayT) -> ArrayT:
    """ρ = π(a|s)/μ(a|s) of the action taken; μ is positive there, since it was taken."""
    return pi_a / mu_a
