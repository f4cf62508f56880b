"""Importance sampling over whole trajectories: products of ρ along time."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import Experience
from covshift.estimation.logs import Logs
from covshift.validation import Vector


class _Products(NamedTuple):
    """Per transition the product of ρ from its trajectory's start, its time, and the columns needed."""

    product: Vector
    time: NDArray[np.int64]
    reward: Vector
    weight: Vector
    trajectory: NDArray[np.int64]
    last: NDArray[np.bool_]
    terminated: NDArray[np.bool_]


def per_decision(experience: Experience, estimand: Estimand) -> float:
    """1/n Σ_i Σ_t γᵗ (Π_{k≤t} ρ_k) r_{t+1}; for the average reward of episodes over the same with r = 1.

    What lies past a truncation counts as 0: the estimand is the value up to where the records are cut.
    """
    parts = _products(experience, estimand)
    total = float((parts.weight * _power(estimand, parts.time) * parts.product) @ parts.reward)
    if estimand.is_average:
        return total / float(parts.weight @ parts.product)
    return total / float(parts.weight[parts.time == 0].sum())


def weighted(experience: Experience, estimand: Estimand) -> float:
    """Σ_i w_i G_i / Σ_i w_i with w_i the product of all ρ of a trajectory and G_i its return."""
    parts = _products(experience, estimand)
    size = experience.logs.num_trajectories
    returns = np.bincount(
        parts.trajectory, _power(estimand, parts.time) * parts.reward, minlength=size
    )
    weights = parts.weight[parts.last] * parts.product[parts.last]
    if not weights.sum() > 0:
        raise InputError(
            f"the product of ρ is 0 in all {size} trajectories: the target policy would take none of them"
        )
    return float(weights @ returns[parts.trajectory[parts.last]] / weights.sum())


def weighted_per_decision(experience: Experience, estimand: Estimand) -> float:
    """Σ_t γᵗ Σ_i w_{i,t} r_{i,t+1} / Σ_i w_{i,t}, w_{i,t} the product of ρ up to t.

    A terminated episode stays in the sum with reward 0 and its last weight; a truncated one leaves it, since
    what came after is not known.
    """
    parts = _products(experience, estimand)
    horizon = int(parts.time.max()) + 1
    now = parts.weight * parts.product
    rewards = np.bincount(parts.time, now * parts.reward, minlength=horizon)
    mass = np.bincount(parts.time, now, minlength=horizon)
    ended = parts.last & parts.terminated
    closed = np.bincount(parts.time[ended], now[ended], minlength=horizon)
    mass += np.concatenate([[0.0], np.cumsum(closed)[:-1]])
    means = np.divide(rewards, mass, where=mass > 0, out=np.zeros(horizon))
    return float(_power(estimand, np.arange(horizon)) @ means)


def time_of(trajectory: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many transitions of its trajectory stand before each."""
    rows = np.arange(len(trajectory))
    first = np.diff(trajectory, prepend=-1) > 0
    return rows - np.maximum.accumulate(np.where(first, rows, 0))


def from_starts(logs: Logs) -> NDArray[np.bool_]:
    """Which trajectories start from d₀; what begins within an episode says nothing about the value of starts.

    Raises:
        InputError: none does.
    """
    found = logs.is_initial[np.diff(logs.trajectory, prepend=-1) > 0]
    if not found.any():
        raise InputError("no trajectory starts from an initial state: none is marked is_initial")
    return np.asarray(found)


def _power(estimand: Estimand, time: NDArray[np.int64]) -> Vector:
    """γᵗ, or 1 for the average reward."""
    return np.asarray((1.0 if estimand.is_average else estimand.discount) ** time.astype(float))


def _products(experience: Experience, estimand: Estimand) -> _Products:
    if estimand.is_average and not experience.logs.has_episodes:
        raise InputError(
            "products of ρ along an endless stream say nothing about its average reward; use a ratio"
        )
    warn_of_cuts(experience, estimand)
    samples = list(experience.samples())
    trajectory = np.concatenate([sample.trajectory for sample in samples])
    with np.errstate(divide="ignore"):
        log_rho = np.log(np.concatenate([sample.rho_tm1 for sample in samples]))
    time = time_of(trajectory)
    weight = np.concatenate([sample.weight for sample in samples])
    weight = weight * from_starts(experience.logs)[trajectory]
    start = np.arange(len(time)) - time
    # Sums of logarithms from each start; where a ρ is 0 so is every later product.
    zero = np.isneginf(log_rho)
    sums = np.cumsum(np.where(zero, 0.0, log_rho))
    zeros = np.cumsum(zero)
    before = np.where(zero, 0.0, log_rho)[start]
    since = sums - sums[start] + before
    dead = zeros - zeros[start] + zero[start] > 0
    return _Products(
        np.where(dead, 0.0, np.exp(since)),
        time,
        np.concatenate([sample.r_t for sample in samples]),
        weight,
        trajectory,
        np.append(time[1:] == 0, True),
        np.concatenate([sample.terminated_t for sample in samples]),
    )


def warn_of_cuts(experience: Experience, estimand: Estimand) -> None:
    """Says where a discounted tail past the records' ends is not negligible."""
    if estimand.is_average or experience.weights is not None:
        return
    logs = experience.logs
    cut = np.zeros(logs.num_trajectories, dtype=bool)
    cut[logs.trajectory[logs.truncated]] = True
    started = from_starts(logs)
    lengths, cut = np.bincount(logs.trajectory)[started], cut[started]
    if (lost := float((estimand.discount ** lengths[cut]).sum() / len(cut))) > 0.02:
        warnings.warn(
            f"{int(cut.sum())} of {len(cut)} trajectories are cut off, so that a share of γᵗ = {lost:.2f} of the "
            "value is still to come, which counts as 0",
            stacklevel=2,
        )
