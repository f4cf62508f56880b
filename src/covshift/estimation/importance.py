"""Importance sampling over whole trajectories, by products of ρ along time."""

from __future__ import annotations

import warnings
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import Experience
from covshift.estimation.logs import Logs
from covshift.validation import Vector

NEGLIGIBLE = 0.02
"""Share of a discounted return that may lie past the ends of the records."""

Terms: TypeAlias = tuple[Vector, Vector]
"""Numerators and denominators, one of each per trajectory; the estimate is the ratio of their sums."""


def per_decision(experience: Experience, estimand: Estimand) -> float:
    """1/n Σ_i Σ_t γᵗ (Π_{k≤t} ρ_k) r_{t+1}; the average reward of episodes divides this by the same with r = 1.

    What lies past a truncation counts as 0: the estimand is the value up to where the records are cut.
    """
    return _ratio(per_decision_terms(experience, estimand))


def per_decision_terms(experience: Experience, estimand: Estimand) -> Terms:
    """What each trajectory adds to the two sums of `per_decision`."""
    weight, sums = _started(experience, estimand), _sums(experience, estimand)
    return weight * sums.gains, weight * sums.masses if estimand.is_average else weight


def weighted(experience: Experience, estimand: Estimand) -> float:
    """Σ_i w_i G_i / Σ_i w_i, where w_i is the product of all ρ of trajectory i and G_i its return."""
    return _ratio(weighted_terms(experience, estimand))


def weighted_terms(experience: Experience, estimand: Estimand) -> Terms:
    """What each trajectory adds to the two sums of `weighted`."""
    weights = _started(experience, estimand) * _sums(experience, estimand).products
    if not weights.sum() > 0:
        raise InputError(
            f"the product of ρ is 0 in all {len(weights)} trajectories: the target policy would take none of them"
        )
    return weights * logged_returns(experience, estimand), weights


def weighted_per_decision(experience: Experience, estimand: Estimand) -> float:
    """Σ_t γᵗ Σ_i w_{i,t} r_{i,t+1} / Σ_i w_{i,t}, where w_{i,t} is the product of ρ up to t.

    A terminated episode stays in the sum with reward 0 and its last weight. A truncated one leaves it, since
    what came after is not known.
    """
    weight, sums = _started(experience, estimand), _sums(experience, estimand)
    rewards, mass, closed = (weight @ by_time for by_time in sums.by_time)
    mass = mass + np.concatenate([[0.0], np.cumsum(closed)[:-1]])
    means = np.divide(rewards, mass, where=mass > 0, out=np.zeros(len(mass)))
    return float(_power(estimand, np.arange(len(mass))) @ means)


def behavior_value(experience: Experience, estimand: Estimand) -> float:
    """The value of the behavior policy μ in the data, to compare a new policy with."""
    return _ratio(behavior_terms(experience, estimand))


def behavior_terms(experience: Experience, estimand: Estimand) -> Terms:
    """What each trajectory adds to the two sums of `behavior_value`."""
    logs, weight = experience.logs, experience.trajectory_weights
    returns = logged_returns(experience, estimand)
    if estimand.is_average:
        return weight * returns, weight * logs.lengths
    warn_of_cuts(experience, estimand)
    started = weight * from_starts(logs)
    return started * returns, started


def effective_trajectories(experience: Experience, estimand: Estimand) -> Vector:
    """(Σ_i w_it)²/Σ_i w_it² for each step t, where w_it is the product of ρ of trajectory i up to t.

    So many equally weighted trajectories would vary as much. As in `weighted_per_decision`, a terminated episode keeps its
    last weight, and a truncated one leaves.
    """
    weight = experience.trajectory_weights * from_starts(experience.logs)
    _, mass, closed = _sums(experience, estimand).by_time

    def over_time(power: int) -> Vector:
        ended = np.cumsum(weight**power @ closed.power(power))
        return np.asarray(weight**power @ mass.power(power) + np.append(0.0, ended[:-1]))

    total, squares = over_time(1), over_time(2)
    return np.divide(total**2, squares, where=squares > 0, out=np.zeros_like(total))


def middle_step(experience: Experience, estimand: Estimand) -> int:
    """The first step by which half of Σ γᵗ over all logged steps has passed, where a value is about decided."""
    passed = np.cumsum(
        np.bincount(step := step_in_trajectory(experience.logs), _power(estimand, step))
    )
    return int(np.searchsorted(passed, 0.5 * passed[-1]))


def logged_returns(experience: Experience, estimand: Estimand) -> Vector:
    """Σ γᵗ r of each trajectory as it was logged; γ = 1 for the average reward."""
    logs = experience.logs

    def add_up() -> Vector:
        gains = _power(estimand, step_in_trajectory(logs)) * logs.reward.astype(np.float64)
        return np.asarray(np.bincount(logs.trajectory, gains, len(logs)), dtype=np.float64)

    return experience.shared(("returns", estimand.objective, estimand.discount), add_up)


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


def lost_to_cuts(experience: Experience, estimand: Estimand) -> float:
    """The share of a discounted return that lies past the ends of records that are cut off, for a constant reward."""
    logs, started = experience.logs, from_starts(experience.logs)
    cut = _are_cut(logs)
    return float((estimand.discount ** logs.lengths[started & cut]).sum() / started.sum())


def warn_of_cuts(experience: Experience, estimand: Estimand) -> None:
    """Warns if the records end before the rest of a discounted return is negligible."""
    if estimand.is_average or experience.weights is not None:
        return
    lost, started = lost_to_cuts(experience, estimand), from_starts(experience.logs)
    if lost > NEGLIGIBLE:
        warnings.warn(
            f"{int((started & _are_cut(experience.logs)).sum())} of {int(started.sum())} trajectories are cut off, so that a "
            f"share of γᵗ = {lost:.2f} of the value is still to come, which counts as 0",
            stacklevel=2,
        )


class _Sums(NamedTuple):
    """What products of ρ need to know of each trajectory, whatever its weight.

    Attributes:
        gains: Σ_t γᵗ (Π_{k≤t} ρ_k) r_{t+1}.
        masses: Σ_t γᵗ Π_{k≤t} ρ_k.
        products: the product of all ρ.
        by_time: trajectories × steps: product × reward, product, and the last product of terminated episodes.
    """

    gains: Vector
    masses: Vector
    products: Vector
    by_time: tuple[sp.csr_array, sp.csr_array, sp.csr_array]


def _ratio(terms: Terms) -> float:
    return float(terms[0].sum() / terms[1].sum())


def _started(experience: Experience, estimand: Estimand) -> Vector:
    """The weight of each trajectory, 0 unless it starts from d₀."""
    if estimand.is_average and not experience.logs.has_episodes:
        raise InputError(
            "products of ρ along an endless stream say nothing about its average reward; use a ratio"
        )
    warn_of_cuts(experience, estimand)
    return np.asarray(experience.trajectory_weights * from_starts(experience.logs))


def _sums(experience: Experience, estimand: Estimand) -> _Sums:
    logs = experience.logs

    def add_up() -> _Sums:
        product = experience.shared("products of ρ", lambda: _products(experience))
        time, last = step_in_trajectory(logs), _last_rows(logs)
        shape = len(logs), int(time.max()) + 1
        bounds = np.append(logs.starts, logs.num_transitions)
        received = product * logs.reward.astype(np.float64)
        discounted = _power(estimand, time)
        ended = last[logs.terminated[last]]
        return _Sums(
            np.bincount(logs.trajectory, discounted * received, len(logs)).astype(np.float64),
            np.bincount(logs.trajectory, discounted * product, len(logs)).astype(np.float64),
            product[last],
            (
                sp.csr_array((received, time, bounds), shape=shape),
                sp.csr_array((product, time, bounds), shape=shape),
                sp.csr_array((product[ended], (logs.trajectory[ended], time[ended])), shape=shape),
            ),
        )

    return experience.shared((_Sums, estimand.objective, estimand.discount), add_up)


def _products(experience: Experience) -> Vector:
    """Of each transition the product of ρ since the start of its trajectory."""
    logs = experience.logs
    with np.errstate(divide="ignore"):
        log_rho = np.log(np.concatenate([sample.rho_tm1 for sample in experience.samples()]))
    # Sums of logarithms since each start; where a ρ is 0, so is every later product.
    zero = np.isneginf(log_rho)
    log_rho = np.where(zero, 0.0, log_rho)
    start = logs.starts[logs.trajectory]
    sums, zeros = np.cumsum(log_rho), np.cumsum(zero)
    since = sums - sums[start] + log_rho[start]
    is_zero = zeros - zeros[start] + zero[start] > 0
    return np.where(is_zero, 0.0, np.exp(since))


def _are_cut(logs: Logs) -> NDArray[np.bool_]:
    """Which trajectories end with a record that was cut off."""
    return np.asarray(logs.truncated[_last_rows(logs)])


def _last_rows(logs: Logs) -> NDArray[np.int64]:
    return logs.starts + logs.lengths - 1


def _power(estimand: Estimand, time: NDArray[np.int64]) -> Vector:
    """γᵗ, or 1 for the average reward."""
    return np.asarray((1.0 if estimand.is_average else estimand.discount) ** time.astype(float))
