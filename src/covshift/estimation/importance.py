"""Importance sampling over whole trajectories, by products of ρ along time."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import Experience
from covshift.estimation.logs import Logs
from covshift.validation import Vector


def per_decision(experience: Experience, estimand: Estimand) -> float:
    """1/n Σ_i Σ_t γᵗ (Π_{k≤t} ρ_k) r_{t+1}; the average reward of episodes divides this by the same with r = 1.

    What lies past a truncation counts as 0: the estimand is the value up to where the records are cut.
    """
    weight, product = _products(experience, estimand)
    time = step_in_trajectory(experience.logs)
    reward = experience.logs.reward.astype(np.float64)
    total = float((weight * _power(estimand, time) * product) @ reward)
    if estimand.is_average:
        return total / float(weight @ product)
    return total / float(weight[time == 0].sum())


def weighted(experience: Experience, estimand: Estimand) -> float:
    """Σ_i w_i G_i / Σ_i w_i, where w_i is the product of all ρ of trajectory i and G_i its return."""
    weight, product = _products(experience, estimand)
    logs = experience.logs
    gains = _power(estimand, step_in_trajectory(logs)) * logs.reward.astype(np.float64)
    returns = np.bincount(logs.trajectory, gains, minlength=len(logs))
    last = _last_rows(logs)
    weights = weight[last] * product[last]
    if not weights.sum() > 0:
        raise InputError(
            f"the product of ρ is 0 in all {len(logs)} trajectories: the target policy would take none of them"
        )
    return float(weights @ returns / weights.sum())


def weighted_per_decision(experience: Experience, estimand: Estimand) -> float:
    """Σ_t γᵗ Σ_i w_{i,t} r_{i,t+1} / Σ_i w_{i,t}, where w_{i,t} is the product of ρ up to t.

    A terminated episode stays in the sum with reward 0 and its last weight. A truncated one leaves it, since
    what came after is not known.
    """
    weight, product = _products(experience, estimand)
    logs, time = experience.logs, step_in_trajectory(experience.logs)
    horizon = int(time.max()) + 1
    now = weight * product
    rewards = np.bincount(time, now * logs.reward.astype(np.float64), minlength=horizon)
    mass = np.bincount(time, now, minlength=horizon)
    last = _last_rows(logs)
    ended = last[logs.terminated[last]]
    closed = np.bincount(time[ended], now[ended], minlength=horizon)
    mass += np.concatenate([[0.0], np.cumsum(closed)[:-1]])
    means = np.divide(rewards, mass, where=mass > 0, out=np.zeros(horizon))
    return float(_power(estimand, np.arange(horizon)) @ means)


def step_in_trajectory(logs: Logs) -> NDArray[np.int64]:
    """The number of transitions before each one in its trajectory."""
    return np.asarray(np.arange(logs.num_transitions) - logs.starts[logs.trajectory])


def from_starts(logs: Logs) -> NDArray[np.bool_]:
    """Which trajectories start from d₀; the others say nothing about the value of starts.

    Raises:
        InputError: none does.
    """
    found = logs.is_initial[logs.starts]
    if not found.any():
        raise InputError("no trajectory starts from an initial state: none is marked is_initial")
    return np.asarray(found)


def warn_of_cuts(experience: Experience, estimand: Estimand) -> None:
    """Warns if the records end before the rest of a discounted return is negligible."""
    if estimand.is_average or experience.weights is not None:
        return
    logs, started = experience.logs, from_starts(experience.logs)
    cut = logs.truncated[_last_rows(logs)][started]
    lost = float((estimand.discount ** logs.lengths[started][cut]).sum() / len(cut))
    if lost > 0.02:
        warnings.warn(
            f"{int(cut.sum())} of {len(cut)} trajectories are cut off, so that a share of γᵗ = {lost:.2f} of the "
            "value is still to come, which counts as 0",
            stacklevel=2,
        )


def _products(experience: Experience, estimand: Estimand) -> tuple[Vector, Vector]:
    """Of each transition its weight, 0 unless its trajectory starts from d₀, and the product of ρ up to it."""
    logs = experience.logs
    if estimand.is_average and not logs.has_episodes:
        raise InputError(
            "products of ρ along an endless stream say nothing about its average reward; use a ratio"
        )
    warn_of_cuts(experience, estimand)
    weight = (experience.trajectory_weights * from_starts(logs))[logs.trajectory]
    with np.errstate(divide="ignore"):
        log_rho = np.log(np.concatenate([sample.rho_tm1 for sample in experience.samples()]))
    # Sums of logarithms since each start; where a ρ is 0, so is every later product.
    zero = np.isneginf(log_rho)
    log_rho = np.where(zero, 0.0, log_rho)
    start = logs.starts[logs.trajectory]
    sums, zeros = np.cumsum(log_rho), np.cumsum(zero)
    since = sums - sums[start] + log_rho[start]
    is_zero = zeros - zeros[start] + zero[start] > 0
    return weight, np.where(is_zero, 0.0, np.exp(since))


def _last_rows(logs: Logs) -> NDArray[np.int64]:
    return logs.starts + logs.lengths - 1


def _power(estimand: Estimand, time: NDArray[np.int64]) -> Vector:
    """γᵗ, or 1 for the average reward."""
    return np.asarray((1.0 if estimand.is_average else estimand.discount) ** time.astype(float))
