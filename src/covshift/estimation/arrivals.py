"""Logged transitions in the order in which online learners of the ratio learn from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.estimation.problem import RatioProblem
from covshift.validation import Vector


class Arrivals(NamedTuple):
    """Arrivals in states, each of which moves the ratio of the state arrived in.

    All but `record` are columns, arrivals × 1, since learners take steps × seeds.

    Attributes:
        s_tm1: the state before; of an initial state the state itself.
        rho_tm1: γρ there.
        s_t: the state arrived in.
        is_initial_t: whether it starts an episode, with target 1.
        record: index of the first arrival of the same unbroken record.
    """

    s_tm1: NDArray[np.int64]
    rho_tm1: Vector
    s_t: NDArray[np.int64]
    is_initial_t: NDArray[np.bool_]
    record: NDArray[np.int64]


def arrivals(problem: RatioProblem, rng: np.random.Generator, *, by_row: bool = False) -> Arrivals:
    """All arrivals in the order of the data; where trajectories are weighted, of as many drawn by weight.

    Args:
        problem: what to estimate.
        rng: for that draw.
        by_row: whether states are row numbers: i for the state before transition i of N, N + i for that after it.
    """
    samples = list(problem.experience.samples())

    def columns(*names: str) -> Iterator[Any]:
        return (np.concatenate([getattr(sample, name) for sample in samples]) for name in names)

    rho, ended, starts, trajectory = columns(
        "rho_tm1", "terminated_t", "is_initial_tm1", "trajectory"
    )
    before, after = np.arange(2 * len(rho)).reshape(2, -1) if by_row else columns("x_tm1", "x_t")
    begins, rho = np.diff(trajectory, prepend=-1) > 0, problem.discount * rho
    if problem.experience.weights is not None:
        order = _resample(trajectory, problem.experience.weights, rng)
        before, rho, after, ended, starts, begins = (
            column[order] for column in (before, rho, after, ended, starts, begins)
        )
    # Before each transition comes the arrival at its state, if the state is where a trajectory begins: from the end
    # of the episode before under `restart`, else as an initial state under `visits`.
    follows = begins & starts & np.roll(ended, 1) & (problem.semantics == "restart")
    follows[0] = False
    breaks = begins & ~follows
    is_initial = breaks & starts & (problem.semantics == "visits")
    kept = np.stack([follows | is_initial, ~ended], axis=1).ravel()
    index = np.cumsum(kept) - kept
    record = np.maximum.accumulate(np.where(breaks, index[::2], 0))

    def both(at_begin: NDArray[Any], at_step: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.stack([at_begin, at_step], axis=1).reshape(-1, 1)[kept])

    return Arrivals(
        both(np.where(follows, np.roll(before, 1), before), before),
        both(np.where(follows, np.roll(rho, 1), 1.0), rho),
        both(before, after),
        both(is_initial, np.zeros_like(is_initial)),
        np.repeat(record, 2)[kept],
    )


def _resample(
    trajectory: NDArray[np.int64], weights: Vector, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of as many trajectories as there are, drawn with these weights."""
    bounds = np.append(np.flatnonzero(np.diff(trajectory, prepend=-1) > 0), len(trajectory))
    drawn = rng.choice(len(weights), size=len(weights), p=weights / weights.sum())
    return np.concatenate([np.arange(bounds[k], bounds[k + 1]) for k in drawn])
