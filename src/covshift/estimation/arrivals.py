"""Logged transitions as a learner of the ratio meets them: arrivals, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from covshift.estimation.problem import RatioProblem
from covshift.validation import Vector


def arrivals(
    problem: RatioProblem, rng: np.random.Generator, *, by_row: bool = False
) -> Iterator[tuple[int, float, int, bool]]:
    """(s, γρ, s', whether s' starts an episode) in the order of the data; s' = -1 where a record begins.

    With `by_row` states are row numbers: i for the state before transition i, N + i for that after it.
    """
    samples = list(problem.experience.samples())
    columns = {
        name: np.concatenate([getattr(sample, name) for sample in samples])
        for name in ("rho_tm1", "terminated_t", "is_initial_tm1", "trajectory")
    }
    size = len(columns["rho_tm1"])
    if by_row:
        before, after = np.arange(size), np.arange(size, 2 * size)
    else:
        before = np.concatenate([sample.x_tm1 for sample in samples])
        after = np.concatenate([sample.x_t for sample in samples])
    order = np.arange(size)
    if problem.experience.weights is not None:
        order = _resample(columns["trajectory"], problem.experience.weights, rng)
    first = np.diff(columns["trajectory"], prepend=-1) > 0
    source, rho, arrived = (
        column[order].tolist() for column in (before, problem.discount * columns["rho_tm1"], after)
    )
    ended, starts, begins = (
        column[order].tolist()
        for column in (columns["terminated_t"], columns["is_initial_tm1"], first)
    )
    semantics, previous = problem.semantics, -1
    for i in range(len(order)):
        if begins[i]:
            follows = semantics == "restart" and previous >= 0 and ended[previous] and starts[i]
            if follows:
                yield source[previous], rho[previous], source[i], False
            else:
                yield 0, 1.0, -1, False
                if semantics == "visits" and starts[i]:
                    yield source[i], 1.0, source[i], True
        if not ended[i]:
            yield source[i], rho[i], arrived[i], False
        previous = i


def _resample(
    trajectory: NDArray[np.int64], weights: Vector, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of as many trajectories as there are, drawn with these weights."""
    bounds = np.append(np.flatnonzero(np.diff(trajectory, prepend=-1) > 0), len(trajectory))
    drawn = rng.choice(len(weights), size=len(weights), p=weights / weights.sum())
    return np.concatenate([np.arange(bounds[k], bounds[k + 1]) for k in drawn])
