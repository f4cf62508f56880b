"""Online updates over a block of transitions, compiled: each is the learners' `step`, repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.theory.simulation import Transition
from covshift.validation import Dense, Vector


def learn_ratio(
    w: Dense,
    phi: Dense | None,
    s_tm1: NDArray[np.int64],
    rho_tm1: Dense,
    s_t: NDArray[np.int64],
    is_initial_t: NDArray[np.bool_],
    ratio_discount: float,
    step_sizes: Vector,
    *,
    window: NDArray[np.int64] | None = None,
    floor: float | None = None,
    mean_weight: Vector | None = None,
    count: int = 0,
) -> None:
    """Discounted COP-TD, eq. (6): c(s_t) moves towards γ̂ ρ c(s_tm1) + (1 - γ̂), or 1 where an episode starts.

    Args:
        w: weights, seeds × features; on a table the ratios, seeds × states. Changed in place.
        phi: states × features, or None for a table.
        s_tm1: steps × seeds, as are the next three.
        rho_tm1: π(a|s)/μ(a|s) of the actions taken.
        s_t: the states whose ratios move.
        is_initial_t: whether s_t starts an episode.
        ratio_discount: γ̂.
        step_sizes: for each step, or steps × seeds.
        window: for each step the first one of its n-step target; by default the step itself. If it is shorter than
            the block, the first steps are history that only targets use, and `step_sizes` leaves them out too.
        floor: δ of the weights 1/max(c, δ) of the errors; None weighs all alike.
        mean_weight: running mean of these weights for each seed; changed in place.
        count: updates before this block.
    """
    window = np.arange(len(s_t)) if window is None else window
    mean_weight = np.zeros(len(w)) if mean_weight is None else mean_weight
    gain = np.where(is_initial_t, 0.0, rho_tm1)
    offset = np.where(is_initial_t, 1.0, 1.0 - ratio_discount)
    shape = (len(w), w.shape[1] if phi is None else len(phi))
    source, moved = (_check_states(states, *shape) for states in (s_tm1, s_t))
    sizes = _rows(step_sizes, (len(window), len(w)))
    _kernels().bootstrap(
        w, phi, source, gain, offset, moved, window, ratio_discount, sizes, floor, mean_weight, count
    )  # fmt: skip


def match_ratio(
    w: Dense,
    phi: Dense,
    s_tm1: NDArray[np.int64],
    rho_tm1: Dense,
    s_t: NDArray[np.int64],
    is_initial_t: NDArray[np.bool_],
    ratio_discount: float,
    step_sizes: Vector,
    *,
    is_safe: bool,
) -> float:
    """COP-TD by the matching loss (B7): g(z) at s_t moves towards ρ c(s_tm1), or 1 where an episode starts.

    Args:
        w: weights, seeds × features; z = φᵀw and c = 1 - γ̂ + γ̂ g(z). Changed in place.
        phi: states × features.
        s_tm1: steps × seeds, as are the next three.
        rho_tm1: π(a|s)/μ(a|s) of the actions taken.
        s_t: the states whose ratios move.
        is_initial_t: whether s_t starts an episode.
        ratio_discount: γ̂.
        step_sizes: for each step.
        is_safe: whether g is the safe link; otherwise it is the exponential.

    Returns:
        The highest score z that was met. Learning stops at one that overflows the exponential.
    """
    source, moved = (_check_states(states, len(w), len(phi)) for states in (s_tm1, s_t))
    sizes = _rows(step_sizes, moved.shape)
    found = _kernels().match(
        w, phi, source, rho_tm1, moved, is_initial_t, ratio_discount, sizes, is_safe
    )
    return float(found)


def learn_value(
    theta: Dense,
    phi: Dense | None,
    block: Transition,
    discount: float,
    step_sizes: Vector,
    weights: Dense,
) -> None:
    """TD(0), eq. (2): V(s_tm1) moves towards r + γ V(s_t), or r where the episode ended.

    Args:
        theta: weights, seeds × features; on a table the values, seeds × states. Changed in place.
        phi: states × features, or None for a table.
        block: the transitions.
        discount: γ.
        step_sizes: for each step, or steps × seeds.
        weights: steps × seeds, what corrects each TD error.
    """
    shape = (len(theta), theta.shape[1] if phi is None else len(phi))
    source, moved = (_check_states(states, *shape) for states in (block.s_t, block.s_tm1))
    gain, offset = np.where(block.is_initial_t, 0.0, 1.0), np.ascontiguousarray(block.r_t)
    sizes, unused = _rows(step_sizes, moved.shape) * weights, np.zeros(len(theta))
    _kernels().bootstrap(
        theta, phi, source, gain, offset, moved, np.arange(len(moved)), discount, sizes, None, unused, 0
    )  # fmt: skip


def count_visits(visits: NDArray[np.int64], states: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each of the states, steps × seeds, was visited before; adds them to `visits`, seeds × states."""
    return np.asarray(_kernels().count_visits(visits, _check_states(states, *visits.shape)))


def _kernels() -> Any:
    # Importing numba takes longer than all of `covshift.learners`.
    from covshift.learners import kernels

    return kernels


def _check_states(states: NDArray[np.int64], num_seeds: int, num_states: int) -> NDArray[np.int64]:
    # Compiled code does not check indices.
    numbers = np.ascontiguousarray(states, dtype=np.int64)
    if numbers.ndim != 2 or numbers.shape[1] != num_seeds:
        raise InputError(f"states have shape {numbers.shape}, but (steps, {num_seeds}) is needed")
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < num_states):
        bad = numbers.min() if numbers.min() < 0 else numbers.max()
        raise InputError(f"there is no state {bad}: the learner has {num_states} states")
    return numbers


def _rows(step_sizes: Vector, shape: tuple[int, ...]) -> Dense:
    sizes = np.asarray(step_sizes, dtype=np.float64)
    by_step = sizes[:, None] if sizes.ndim == 1 else sizes
    return np.ascontiguousarray(np.broadcast_to(by_step, shape))
