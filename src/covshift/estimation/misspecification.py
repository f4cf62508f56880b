"""A check of a ratio's equation in a richer class than that of the fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from covshift.estimation.problem import RatioFunction, RatioProblem
from covshift.estimation.sample import Sample
from covshift.rules import discounted_cop_target
from covshift.validation import Dense, Vector

MOST_ROWS = 50_000
"""The most arrivals that the flexible model is fitted to; of more data evenly spaced ones are taken."""

MOST_ENTRIES = 1000
"""Observations with more entries, such as the pixels of a game, are not checked."""

FEWEST_TRAJECTORIES = 10
"""Fewer held-out trajectories give no standard error that can be relied on."""

Observable: TypeAlias = Callable[[NDArray[Any]], Vector]


@final
class Violation(NamedTuple):
    """By how much a ratio violates its equation, as far as a flexible model can tell.

    Attributes:
        size: a lower bound on ‖Y_γ̂ĉ - ĉ‖, up to chance; NaN if it was not checked.
        standard_error: of the size, over trajectories.
        norm: ‖ĉ‖ on the same data.
    """

    size: float
    standard_error: float
    norm: float


UNCHECKED = Violation(math.nan, math.nan, math.nan)


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
    logs = test.experience.logs
    entries = int(np.prod(logs.states(np.zeros(1, dtype=np.int64)).shape[1:]))
    if test.experience.is_tabular or entries > MOST_ENTRIES or len(logs) < FEWEST_TRAJECTORIES:
        return UNCHECKED
    return _measure(test, function, _learn_error(fitted, function))


def _learn_error(problem: RatioProblem, function: RatioFunction) -> Observable:
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
    return lambda observations: np.asarray(model.predict(_flat(observations)))


def _measure(problem: RatioProblem, function: RatioFunction, observable: Observable) -> Violation:
    """⟨g, Y_γ̂ĉ - ĉ⟩/‖g‖ in sums over transitions, as in the equation that linear fits solve."""
    logs, discount = problem.experience.logs, problem.ratio_discount
    restarting = _restarting_flow(problem, function)
    per_trajectory = np.zeros(len(logs))
    squares = ratios = count = 0.0
    for rows, sample in _rows(problem):
        c, g_tm1 = function.at(sample.x_tm1), observable(logs.states(rows))
        # After an episode's end there is no state, so that nothing arrives.
        after = logs.next_states(np.where(sample.terminated_t, rows[0], rows))
        arriving = problem.discount * sample.rho_tm1 * c * ~sample.terminated_t
        inflow = arriving * observable(after)
        if problem.semantics != "continuing":
            inflow = inflow + restarting * sample.is_initial_tm1 * g_tm1
        balance = discount * inflow + (1.0 - discount - c) * g_tm1
        per_trajectory += np.bincount(
            sample.trajectory, sample.weight * balance, minlength=len(logs)
        )
        squares += float(sample.weight @ g_tm1**2)
        ratios += float(sample.weight @ c**2)
        count += float(sample.weight.sum())
    if not squares > 0:
        return Violation(0.0, 0.0, float(np.sqrt(ratios / count)))
    scale = np.sqrt(squares * count)
    return Violation(
        float(per_trajectory.sum() / scale),
        float(per_trajectory.std(ddof=1) * np.sqrt(len(logs)) / scale),
        float(np.sqrt(ratios / count)),
    )


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
    """The prepared samples with the numbers of their transitions."""
    first = 0
    for sample in problem.experience.samples():
        yield np.arange(first, first + len(sample.r_t)), sample
        first += len(sample.r_t)


def _flat(states: NDArray[Any]) -> Dense:
    return np.asarray(states.reshape(len(states), -1), dtype=np.float64)
