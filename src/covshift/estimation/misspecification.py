"""Checks of a ratio's equation by functions of the observation that the fit did not use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import scipy.sparse as sp
import scipy.stats
from numpy.typing import NDArray

from covshift.estimation.problem import RatioFunction, RatioProblem
from covshift.estimation.sample import Sample
from covshift.rules import discounted_cop_target
from covshift.validation import Dense

MOST_ROWS = 50_000
"""The most arrivals that the flexible model is fitted to; of more data evenly spaced ones are taken."""

MOST_ENTRIES = 1000
"""Observations with more entries, such as the pixels of a game, are not checked."""

_ROWS = 10_000
"""Transitions whose observations are looked at together."""

FEWEST_TRAJECTORIES = 10
"""Fewer held-out trajectories give no standard error that can be relied on."""

CHANCE = 0.025
"""How often chance alone may make a violation look sure."""

Observables: TypeAlias = Callable[[NDArray[Any]], Dense]
"""From a batch of observations to one column for each function g of them."""


@final
class Violation(NamedTuple):
    """By how much a ratio violates its equation, as far as a flexible model can tell.

    Attributes:
        size: a lower bound on ‖Y_γ̂ĉ - ĉ‖, up to chance; NaN if it was not checked.
        standard_error: of the size, over trajectories.
        norm: ‖ĉ‖ on the same data.
        sure: what is left of the size if chance made it as large as it does in 1 of 40 cases.
    """

    size: float
    standard_error: float
    norm: float
    sure: float


UNCHECKED = Violation(math.nan, math.nan, math.nan, math.nan)


def find_violation(fitted: RatioProblem, test: RatioProblem, function: RatioFunction) -> Violation:
    """Searches held-out trajectories for a violation of the ratio's equation that the fit's features do not show.

    Gradient-boosted trees g learn Y_γ̂ĉ - ĉ from the observations of the trajectories that ĉ was fitted to. On held-out
    trajectories ⟨g, Y_γ̂ĉ - ĉ⟩/‖g‖ then estimates a lower bound on the norm of Y_γ̂ĉ - ĉ, whatever g is, and its
    standard error says what chance can do. A ratio that solves its equation has 0 for every g.

    A table is the richest class there is, so it is not checked.

    Args:
        fitted: the problem on the trajectories that ĉ was fitted to.
        test: the same problem on other trajectories.
        function: ĉ.
    """
    if not can_check(test):
        return UNCHECKED
    return _measure(test, function, _learn_error(fitted, function))


def _learn_error(problem: RatioProblem, function: RatioFunction) -> Observables:
    """A model of Y_γ̂ĉ - ĉ as a function of the observation."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    logs = problem.experience.logs
    every = -(-logs.num_transitions // MOST_ROWS)
    restarting = _restarting_flow(problem, function)
    states, errors = [], []
    for rows, sample in _rows(problem):
        c_tm1, going = function.at(sample.x_tm1), ~sample.terminated_t
        flow = problem.discount * c_tm1
        target = discounted_cop_target(flow, sample.rho_tm1, problem.ratio_discount)
        kept = rows[going][::every]
        states.append(_flat(logs.next_states(kept)))
        errors.append((target - function.at(sample.x_t))[going][::every])
        if problem.semantics != "continuing":
            starts = sample.is_initial_tm1
            arriving = np.full(int(starts.sum()), restarting)
            target = discounted_cop_target(arriving, np.ones_like(arriving), problem.ratio_discount)
            states.append(_flat(logs.states(rows[starts][::every])))
            errors.append((target - c_tm1[starts])[::every])
    model = HistGradientBoostingRegressor(
        max_leaf_nodes=15, min_samples_leaf=40, early_stopping=False, random_state=0
    ).fit(np.concatenate(states), np.concatenate(errors))
    return lambda observations: np.asarray(model.predict(_flat(observations)))[:, None]


def find_imbalance(test: RatioProblem, function: RatioFunction) -> Violation:
    """The same for observables that no fit has chosen: every entry of the observation, and its square.

    Of these the one is reported that surely violates the equation by most. Its bound `sure` allows for having looked at all of
    them (Bonferroni).

    Args:
        test: the problem on trajectories that ĉ was not fitted to.
        function: ĉ.
    """
    logs = test.experience.logs
    if not can_check(test):
        return UNCHECKED
    every = -(-logs.num_transitions // MOST_ROWS)
    states = _flat(logs.states(np.arange(0, logs.num_transitions, every)))
    mean, scale = states.mean(axis=0), states.std(axis=0)
    varying = np.flatnonzero(scale > 0)
    if not len(varying):
        return UNCHECKED

    def observe(observations: NDArray[Any]) -> Dense:
        x = (_flat(observations)[:, varying] - mean[varying]) / scale[varying]
        return np.concatenate([x, x**2 - 1.0], axis=1)

    return _measure(test, function, observe)


def can_check(test: RatioProblem) -> bool:
    """Whether held-out trajectories are many enough, and observations richer than a table and not too large."""
    logs = test.experience.logs
    entries = int(np.prod(logs.states(np.zeros(1, dtype=np.int64)).shape[1:]))
    is_checked = not test.experience.is_tabular and entries <= MOST_ENTRIES
    return is_checked and len(logs) >= FEWEST_TRAJECTORIES


def _measure(problem: RatioProblem, function: RatioFunction, observe: Observables) -> Violation:
    """|⟨g, Y_γ̂ĉ - ĉ⟩|/‖g‖ in sums over transitions, as in the equation that linear fits solve, for the worst g."""
    logs, discount = problem.experience.logs, problem.ratio_discount
    restarting = _restarting_flow(problem, function)
    per_trajectory: Any = 0.0
    squares: Any = 0.0
    ratios = count = 0.0
    for rows, sample in _rows(problem):
        c, g_tm1 = function.at(sample.x_tm1), observe(logs.states(rows))
        # After an episode's end there is no state, so that nothing arrives.
        after = logs.next_states(np.where(sample.terminated_t, rows[0], rows))
        arriving = problem.discount * sample.rho_tm1 * c * ~sample.terminated_t
        here = 1.0 - discount - c
        if problem.semantics != "continuing":
            here = here + discount * restarting * sample.is_initial_tm1
        balance = discount * arriving[:, None] * observe(after) + here[:, None] * g_tm1
        owner = sp.csr_array(
            (sample.weight, sample.trajectory, np.arange(len(rows) + 1)),
            shape=(len(rows), len(logs)),
        )
        per_trajectory = per_trajectory + owner.T @ balance
        squares = squares + sample.weight @ g_tm1**2
        ratios += float(sample.weight @ c**2)
        count += float(sample.weight.sum())
    norm = float(np.sqrt(ratios / count))
    kept = squares > 0
    if not kept.any():
        return Violation(0.0, 0.0, norm, 0.0)
    scale = np.sqrt(squares[kept] * count)
    sizes = per_trajectory[:, kept].sum(axis=0) / scale
    errors = per_trajectory[:, kept].std(axis=0, ddof=1) * np.sqrt(len(logs)) / scale
    if len(sizes) > 1:  # The sign of a learned g is known, that of an entry is not.
        sizes = np.abs(sizes)
    sure = sizes - scipy.stats.norm.isf(CHANCE / len(sizes)) * errors
    worst = int(np.argmax(sure))
    return Violation(float(sizes[worst]), float(errors[worst]), norm, float(sure[worst]))


def _restarting_flow(problem: RatioProblem, function: RatioFunction) -> float:
    """What arrives at each initial state: 1 if visits are counted, else its share of what ended."""
    if problem.semantics != "restart":
        return 1.0
    ended = starts = 0.0
    for sample in problem.experience.samples():
        weight = sample.weight * sample.rho_tm1 * function.at(sample.x_tm1)
        ended += float(weight @ sample.terminated_t)
        starts += float(sample.weight @ sample.is_initial_tm1)
    return ended / starts


def _rows(problem: RatioProblem) -> Iterator[tuple[NDArray[np.int64], Sample]]:
    """The prepared samples with the numbers of their transitions, few at a time since observations may be long."""
    first = 0
    for sample in problem.experience.samples():
        for low in range(0, len(sample.r_t), _ROWS):
            columns: list[Any] = [column[low : low + _ROWS] for column in sample]
            part = Sample(*columns)
            yield np.arange(first, first + len(part.r_t)), part
            first += len(part.r_t)


def _flat(states: NDArray[Any]) -> Dense:
    return np.asarray(states.reshape(len(states), -1), dtype=np.float64)
