"""Checks of what comes from outside, each with one sentence that names the bad value."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from covshift.errors import InputError

Vector: TypeAlias = NDArray[np.float64]
Dense: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64] | sp.csr_array

TOLERANCE = 1e-9
"""How far a sum of probabilities may stray from 1."""


def as_vector(name: str, value: ArrayLike, size: int) -> Vector:
    """A float64 vector of `size` finite entries."""
    vector = np.array(value, dtype=np.float64)
    if vector.shape != (size,):
        raise InputError(f"{name} has shape {vector.shape}, but ({size},) is needed")
    _check_finite(name, vector)
    return _frozen(vector)


def as_table(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Dense:
    """A float64 array of `shape` with finite entries; -1 in `shape` stands for any length."""
    table = np.array(value, dtype=np.float64)
    fits = table.ndim == len(shape) and all(
        want in (-1, have) for want, have in zip(shape, table.shape, strict=True)
    )
    if not fits:
        wanted = str(shape).replace("-1", "any")
        raise InputError(f"{name} has shape {table.shape}, but {wanted} is needed")
    _check_finite(name, table)
    return _frozen(table)


def as_distribution(name: str, value: ArrayLike, size: int) -> Vector:
    """A probability vector of `size` entries."""
    vector = as_vector(name, value, size)
    check_rows(name, vector[None, :])
    return vector


def as_policy(name: str, value: ArrayLike, num_states: int, num_actions: int) -> Dense:
    """A policy: one probability vector over actions for each state."""
    policy = as_table(name, value, (num_states, num_actions))
    check_rows(name, policy)
    return policy


def as_occupancy(name: str, value: ArrayLike, size: int, *, episodic: bool) -> Vector:
    """What `MarkovChain.occupancy` returns: a distribution, or for episodes counts of visits."""
    if not episodic:
        return as_distribution(name, value, size)
    visits = as_vector(name, value, size)
    if (visits < 0).any():
        raise InputError(f"{name} counts visits, but one entry is {visits.min():.6g}")
    return visits


def as_weights(name: str, value: ArrayLike, size: int) -> Vector:
    """A vector of `size` positive weights."""
    weights = as_vector(name, value, size)
    if (weights <= 0).any():
        state = int(np.argmin(weights))
        raise InputError(
            f"{name} must be positive everywhere, but {name}[{state}] = {weights[state]:.6g}; "
            "leave such states out"
        )
    return weights


MOST_SEEDS = 1000
"""Runs of one agent. A larger number is a typing error, and would fill the memory with configurations."""


def check_count(name: str, value: int, most: int = 10**9) -> int:
    """A whole number from 1 to `most`; beyond a billion a typing error is likelier than a wish."""
    if value < 1:
        raise InputError(f"{name} must be at least 1, but it is {value}")
    if value > most:
        raise InputError(f"{name} must be at most {most:,}, but it is {value}")
    return int(value)


def check_repeats(name: str, value: int) -> int:
    """A number of episodes, frames or problems: each takes time, and its result is kept in memory."""
    return check_count(name, value, 100_000)


def check_workers(workers: int) -> int:
    """A number of processes that a machine can run."""
    return check_count("workers", workers, 1024)


def check_seed(seed: int) -> int:
    """A whole number that is not negative and fits into 63 bits, so that every file can hold it."""
    if not 0 <= seed < 2**63:
        raise InputError(f"seed must lie in [0, {2**63:,}), but it is {seed}")
    return seed


def check_discount(name: str, value: float, *, below_one: bool = False) -> float:
    """A discount in [0, 1], or in [0, 1) with `below_one`."""
    if not (0.0 <= value < 1.0 or (value == 1.0 and not below_one)):
        interval = "[0, 1)" if below_one else "[0, 1]"
        raise InputError(f"{name} must lie in {interval}, but it is {value}")
    return float(value)


def check_rows(name: str, rows: Matrix, *, substochastic: bool = False) -> None:
    """Each row is nonnegative and sums to 1, or to at most 1 with `substochastic`."""
    values = rows.data if sp.issparse(rows) else rows
    _check_finite(name, np.asarray(values))
    if values.size and values.min() < 0:
        raise InputError(f"{name} has a negative probability: {values.min():.6g}")
    sums = np.asarray(rows.sum(axis=1)).ravel()
    excess = sums - 1.0 if substochastic else np.abs(sums - 1.0)
    row = int(np.argmax(excess))
    if excess[row] > TOLERANCE:
        wanted = "at most 1" if substochastic else "1"
        place = f"row {row} of {name}" if rows.shape[0] > 1 else name
        raise InputError(f"{place} sums to {sums[row]:.12g}, but it must sum to {wanted}")


def name_states(states: NDArray[Any]) -> str:
    """A few states by number, for an error message."""
    shown = ", ".join(str(int(state)) for state in states[:5])
    return f"{{{shown}, … ({len(states)} in all)}}" if len(states) > 5 else f"{{{shown}}}"


def _check_finite(name: str, values: NDArray[np.float64]) -> None:
    if not np.isfinite(values).all():
        bad = values[~np.isfinite(values)].flat[0]
        raise InputError(f"{name} has an entry that is not a finite number: {bad}")


def _frozen(array: NDArray[np.float64]) -> NDArray[np.float64]:
    array.flags.writeable = False
    return array
