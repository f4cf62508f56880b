"""A batch of transitions in the form that every estimator sums over."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.validation import Dense, Vector


class Sample(NamedTuple):
    """A batch of consecutive transitions, prepared for a fit: one entry per transition in each field.

    Attributes:
        x_tm1: features of the state before, or its number.
        a_tm1: the action taken.
        rho_tm1: ρ = π(a|s)/μ(a|s).
        pi_tm1: π(·|s), the probabilities of all actions.
        r_t: the reward.
        terminated_t: whether the episode ended.
        x_t: features of the state after, or its number; meaningless where the episode ended.
        pi_t: π(·|s'), meaningless where the episode ended.
        is_initial_tm1: whether the state before is a draw from the start distribution d₀.
        trajectory: the number of its trajectory.
        weight: how often the transition counts.
    """

    x_tm1: NDArray[Any]
    a_tm1: NDArray[np.int64]
    rho_tm1: Vector
    pi_tm1: Dense
    r_t: Vector
    terminated_t: NDArray[np.bool_]
    x_t: NDArray[Any]
    pi_t: Dense
    is_initial_tm1: NDArray[np.bool_]
    trajectory: NDArray[np.int64]
    weight: Vector
