"""The whole population of a finite problem as weighted data, on which estimators must be exact."""

from __future__ import annotations

import numpy as np

from covshift.estimation.arrays import from_arrays
from covshift.estimation.experience import Experience
from covshift.estimation.features import FeaturesLike, as_features
from covshift.estimation.policies import as_policy
from covshift.theory.examples import Problem


def population(problem: Problem, features: FeaturesLike = None) -> Experience:
    """One trajectory of one step for every (s, a, s'), whose weight is its exact frequency under μ.

    An estimator that folds over transitions then gives what it tends to as data grow: for a consistent one
    the truth, up to rounding. A continuing problem starts from d_μ.
    """
    kernel = problem.mdp.dense_kernel()
    size, num_actions, _ = kernel.shape
    ends = np.maximum(1.0 - kernel.sum(axis=2, keepdims=True), 0.0)
    s, a, t = np.nonzero(np.concatenate([kernel, ends], axis=2) > 1e-15)
    weight = problem.d_mu[s] * problem.mu[s, a] * np.concatenate([kernel, ends], axis=2)[s, a, t]
    d_0 = problem.d_mu if problem.mdp.d_0 is None else problem.mdp.d_0
    starts = np.divide(d_0, problem.d_mu, where=problem.d_mu > 0, out=np.zeros(size))[s]
    # Each transition twice: once as the first of its episode, once as a later one.
    weight = np.concatenate([weight * starts, weight * (1.0 - starts)])
    s, a, t = (np.tile(column, 2) for column in (s, a, t))
    logs = from_arrays(
        s,
        a,
        problem.mdp.r[s, a],
        t % size,
        t == size,
        trajectory=np.arange(len(s)),
        mu=problem.mu[s, a],
        is_initial=np.arange(len(s)) < len(s) // 2,
        num_actions=num_actions,
    )
    return Experience(
        logs,
        as_policy(problem.pi, num_actions),
        as_features(features, logs),
        weights=np.maximum(weight, 0.0) * len(weight),
    )


def true_value(problem: Problem, discount: float) -> float:
    """E_{d₀}[V^π]; a continuing problem starts from d_μ."""
    start = problem.d_mu if problem.mdp.d_0 is None else problem.mdp.d_0
    return float(start @ problem.mdp.value(problem.pi, discount))


def true_average(problem: Problem) -> float:
    """The average reward of π; an episode's end leads to the next one's start."""
    again = problem.restart()
    return float(again.d_pi @ again.mdp.r_pi(problem.pi))
